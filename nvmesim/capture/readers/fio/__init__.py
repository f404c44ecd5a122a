"""Readers of fio's reports (JSON, terse, normal output), logs and iologs, and of t/io_uring."""
