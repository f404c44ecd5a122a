"""Readers of other tools' reports: Iometer, iostat."""
