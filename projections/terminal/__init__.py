"""What all commands share: options, output, durations, connections, logs and signals."""
