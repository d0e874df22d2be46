"""The `.sx` language: reading text, and evaluating ordinary Lisp with diagnostics."""
