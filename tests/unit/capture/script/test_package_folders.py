"""Telling installed packages from the user's own files."""

from __future__ import annotations

import site
import sys
import sysconfig

import pytest

from presim.capture.script.package_folders import package_folders


def test_packages_of_the_user_the_system_and_of_pth_files_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/home/me/work", "/opt/shared/site-packages", "/usr/dist-packages/"])
    folders = package_folders()
    assert folders[0] == sysconfig.get_path("purelib") + "/"
    assert site.getusersitepackages() + "/" in folders
    assert {folder + "/" for folder in site.getsitepackages()} <= {*folders}
    assert folders[-2:] == ("/opt/shared/site-packages/", "/usr/dist-packages/")
    assert "/home/me/work/" not in folders
