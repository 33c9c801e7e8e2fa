"""Arrays at run time: their memory, types, exchange with other libraries, and files of parameters."""
