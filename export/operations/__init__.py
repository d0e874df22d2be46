"""Every operation of the language, one class each, one file a family."""
