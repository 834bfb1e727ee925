"""`make audit` counts nothing as fine that was not checked."""

from security.audit import installed, said

FINE = {"name": "a", "version": "1", "vulns": []}
FAULTY = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


def test_all_checked_and_none_known_is_fine():
    assert said([FINE], 1) == (["audit: 1 of 1 packages checked, 0 known vulnerabilities"], 0)


def test_a_vulnerability_is_told_with_the_version_that_mends_it():
    lines, code = said([FINE, FAULTY], 2)
    assert lines[0] == "VULNERABLE b 2: PYSEC-1, mended in 2.1" and code == 1


def test_what_nobody_could_be_asked_about_is_not_fine():
    for packages in ([], [SKIPPED]):
        lines, code = said(packages, 1)
        assert "needs a network" in lines[0] and code == 2
    assert said([FINE, SKIPPED], 2)[1] == 2


def test_packages_are_asked_about_by_their_published_version_and_the_project_is_not():
    found = installed()
    assert any(one.startswith("numpy==") for one in found) and not any("+" in one or one.startswith("latentry=") for one in found)
