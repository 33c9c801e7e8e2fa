"""The target ``c``: C99 text for any processor, compiled by the C compiler of the machine."""
