"""Mutation testing: small changes of the source that some test ought to notice.

Own driver, because the kernel must run with the JIT off and the tests of a package are named: each
mutant is a child process in which the import of one module yields the changed source. Nothing is
written to the source tree.
"""
