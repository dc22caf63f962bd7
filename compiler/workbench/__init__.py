"""One function by hand: run by the interpreter, lowered, printed, built into a library, called and timed."""
