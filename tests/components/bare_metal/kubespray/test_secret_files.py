"""Files with secret variables, as Ansible reads them."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.bare_metal.kubespray.driver.converge import literal


def loaded(variables: dict[str, str]) -> Any:
    return DataLoader().load(literal(variables), file_name="secrets.yml", show_content=False)


@given(variables=st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.text(), max_size=4))
def test_every_secret_is_read_as_it_was_given(variables: dict[str, str]) -> None:
    assert loaded(variables) == variables


@pytest.mark.parametrize("password", ["{{ 7 * 6 }}", "a{{b", "{% if %}", "p\u00e4ss\U0001f600\x7f\u2028: #'\"\\"])
def test_no_secret_is_a_template(password: str, tmp_path: pathlib.Path) -> None:
    variables = loaded({"password": password})
    templar = Templar(loader=DataLoader(), variables=variables)
    assert templar.template("{{ password }}") == password
