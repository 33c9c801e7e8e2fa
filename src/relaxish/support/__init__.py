"""Ground floor: errors, diagnostics, configuration, logging, the journal file and worker processes.

Nothing here knows about any IR. Every other folder may import this one.
"""
