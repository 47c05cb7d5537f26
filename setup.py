"""What pyproject.toml cannot say: the queries of TPC-H stand with the tests, and a built package has a copy of them.

`headrace.datasets.tpch_queries` reads that copy, or, in a checkout and where one is installed with `-e`, the originals.
"""

from pathlib import Path
from shutil import copyfile

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithQueries(build_py):
    """Copies the queries into the package, and takes their files into source distributions."""

    queries = sorted(Path("tests", "fixtures", "tpch").glob("*.sql"))

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        if not self.queries:
            raise FileNotFoundError("tests/fixtures/tpch has no queries: build from a whole checkout")
        folder = Path(self.build_lib, "headrace", "datasets", "tpch_sql")
        folder.mkdir(parents=True, exist_ok=True)
        for query in self.queries:
            copyfile(query, folder / query.name)

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *map(str, self.queries)]


setup(cmdclass={"build_py": BuildWithQueries})
