"""Bugs of the page for tenants: links and sessions, forms of other sites, whose page it is."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_PAGE = "projections/webhooks/page"
_HOSTILE = "tests/integration/webhooks/page/test_hostile.py"
_PAGES = "tests/integration/webhooks/page/test_pages.py"
_UNIT = "tests/unit/test_webhook_page.py"

in_python(
    "page-links-let-in-again",
    "a link lets in whoever has it, also after it was used",
    f"{_PAGE}/entrance.py: Entrance._used_now",
    'or row["answer"] is not None',
    "",
    Pytest(f"{_HOSTILE}::test_a_link_lets_in_once"),
)

in_python(
    "page-links-are-forgotten-before-they-expire",
    "a link that is good for hours can be used again after some minutes",
    f"{_PAGE}/entrance.py: Entrance._used_now",
    "kept, _REMEMBERED)",
    "kept, _REMEMBERED / 24)",
    Pytest(f"{_HOSTILE}::test_a_link_is_known_to_be_used_for_as_long_as_it_is_good"),
)
in_python(
    "page-links-outlive-their-memory",
    "a link can be made that is good for longer than it is remembered that it was used",
    f"{_PAGE}/links.py: PageLinks.link",
    "if expires_in > _LONGEST:",
    "if False:",
    Pytest(f"{_UNIT}::test_keys_and_times_have_bounds_and_are_in_no_text"),
)
in_python(
    "page-tokens-do-not-expire",
    "a link, and a session, is good without end",
    "projections/webhooks/signed_tokens.py: SignedTokens.read",
    'return facts if time.time() < facts["expires"] else None',
    "return facts",
    Pytest(f"{_UNIT}::test_a_link_expires"),
)
in_python(
    "page-tokens-are-for-any-purpose",
    "a token of the API is a link to the page, and a link that was used a session",
    "projections/webhooks/signed_tokens.py: SignedTokens.read",
    "or purpose != self._purpose",
    "",
    Pytest(f"{_UNIT}::test_no_token_is_good_for_another_purpose"),
)
in_python(
    "page-forms-are-of-any-tenant",
    "a form that one tenant was shown is followed for another one who has signed in since",
    f"{_PAGE}/forms.py: FormMark.token",
    "tenant.encode()",
    'b""',
    Pytest(f"{_HOSTILE}::test_a_form_without_its_token_does_nothing"),
)
in_python(
    "page-takes-forms-of-other-sites",
    "a form that another site has made a browser send is read",
    f"{_PAGE}/app.py: _Page._form",
    "if found := foreign_form(request.headers, self.settings.origins):",
    "if found := None:",
    Pytest(f"{_HOSTILE}::test_a_form_of_another_site_does_nothing"),
)
in_python(
    "page-other-sites-press-the-button",
    "another site signs a browser in as a tenant of its choice",
    f"{_PAGE}/entrance.py: Entrance._enter",
    'not in {"same-origin", "none"}',
    'in {"nowhere"}',
    Pytest(f"{_HOSTILE}::test_another_site_cannot_press_the_button_of_a_link"),
)
in_python(
    "page-asks-as-an-administrator",
    "the page shows what all tenants have",
    f"{_PAGE}/visit.py: Visit._call",
    "Caller(self.tenant)",
    "Caller(None)",
    Pytest(f"{_HOSTILE}::test_a_tenant_sees_nothing_of_another_one"),
)
in_python(
    "page-lets-administrators-in",
    "whoever is no tenant is shown a page of none",
    f"{_PAGE}/app.py: _Page._answer",
    "if caller.tenant is None:",
    "if False:",
    Pytest(f"{_HOSTILE}::test_an_administrator_is_no_tenant"),
)
in_python(
    "page-sessions-stay-after-signing-out",
    "who signs out stays signed in",
    f"{_PAGE}/links.py: PageLinks.end",
    'self._set(response, "", max_age=0)',
    "pass",
    Pytest(f"{_HOSTILE}::test_who_signs_out_is_out"),
)
in_python(
    "page-sessions-go-along-from-other-sites",
    "the cookie of a session goes along with what another site leads to",
    f"{_PAGE}/links.py: PageLinks._set",
    'samesite="strict"',
    'samesite="lax"',
    Pytest(f"{_HOSTILE}::test_a_session_is_a_strict_cookie_that_ends"),
)
in_python(
    "page-settings-overwrite-others",
    "settings that somebody else has saved since the form was shown are overwritten",
    f"{_PAGE}/settings_form.py: save",
    'version=visit.form.get("version", "")',
    "version=str((await visit.ask(api.get_endpoint)).version)",
    Pytest(f"{_PAGES}::test_an_endpoint_is_changed_and_headers_stay_unless_said"),
)
in_python(
    "page-credentials-overwrite-others",
    "a certificate that somebody else has set since the form was shown is replaced",
    f"{_PAGE}/credentials.py: set_certificate",
    'version=visit.form.get("version", "")',
    "version=str((await visit.ask(get_endpoint)).version)",
    Pytest(f"{_PAGES}::test_a_client_certificate_is_set_replaced_and_removed"),
)
in_python(
    "page-oauth-overwrites-others",
    "a client of OAuth that somebody else has set since the form was shown is replaced",
    f"{_PAGE}/credentials.py: set_oauth",
    'version=visit.form.get("version", "")',
    "version=str((await visit.ask(get_endpoint)).version)",
    Pytest(f"{_PAGES}::test_access_tokens_are_set_and_removed"),
)
in_python(
    "page-reads-long-forms-of-anybody",
    "whoever has no session makes the page read a large form",
    f"{_PAGE}/entrance.py: Entrance.__init__",
    'settings.model_copy(update={"max_body_bytes": _LONGEST_FORM})',
    "settings",
    Pytest(f"{_HOSTILE}::test_a_forged_link_lets_nobody_in"),
)
in_python(
    "page-forms-do-not-count",
    "a tenant sends forms any number of times",
    f"{_PAGE}/app.py: _Page._form",
    "allowances.ask(tenant)",
    "pass",
    Pytest(f"{_HOSTILE}::test_a_tenant_that_asks_too_often_is_refused_and_others_are_not"),
)
in_python(
    "page-forms-are-followed-twice",
    "a form that is sent twice makes two endpoints",
    f"{_PAGE}/visit.py: Visit.ask_once",
    '{"idempotency-key": f"page/{once}"}',
    "{}",
    Pytest(f"{_PAGES}::test_a_form_that_is_sent_twice_makes_one_endpoint"),
)
in_python(
    "page-links-are-signed-with-the-oldest-key",
    "a new key in front signs nothing: once the old one is dropped, nobody is let in any more",
    "projections/webhooks/signed_tokens.py: SignedTokens.issue",
    "self._keys[0]",
    "self._keys[-1]",
    Pytest(f"{_UNIT}::test_a_link_of_an_older_key_is_good_while_that_is_known"),
)
