"""The figures of Section 9 of the F-IVM paper, one command each: what is measured here, beside what the paper reports.

A figure (`figure`) says what the paper measured, which benchmarks of the package are run for it with which arguments,
and how their results become panels of lines or bars (`chart`) and ratios beside those of the paper. The figures stand
in a module per experiment, and in one registry (`registry`). `figures` runs them, `drawing` draws them.
"""
