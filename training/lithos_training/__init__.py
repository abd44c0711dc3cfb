"""Training of lithos-mini: a small Qwen3.5-shaped hybrid and its DSpark drafter."""
