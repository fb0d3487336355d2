/** What makes the page easier to use; it does all it has to do without. */

for (const time of document.querySelectorAll("time")) {
  const at = new Date(time.dateTime);
  time.title = time.textContent;
  time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    document.getElementById("copied").textContent = "Copied";
    button.textContent = "Copied";
  });
}

document.getElementById("problem")?.focus();

// A second click sends nothing a second time.
for (const form of document.querySelectorAll('form[method="post"]')) {
  form.addEventListener("submit", () => {
    setTimeout(() => form.querySelectorAll("button").forEach((button) => { button.disabled = true; }));
  });
}
// A page that the browser brings back is as it was left.
addEventListener("pageshow", () => {
  document.querySelectorAll("form button").forEach((button) => { button.disabled = false; });
});
