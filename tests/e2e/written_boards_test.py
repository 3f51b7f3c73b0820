#!/usr/bin/env python3
"""Follows docs/emulated-node.md: the files it shows make a board and a kernel description, without code."""
import json
import re

from harness import ROOT, World, main, require

DOCUMENT = (ROOT / "docs/emulated-node.md").read_text()


def write_files(folder):
    """Every `name`: followed by a block of YAML."""
    names = []
    for name, text in re.findall(r"^`([\w./-]+\.yaml)`:\n\n```yaml\n(.*?)^```$", DOCUMENT, re.M | re.S):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        names.append(name)
    require(names == ["my-boards/boards.yaml", "my-boards/emulator.yaml", "mine.yaml", "scenario.yaml"], "the document shows other files", names)


def the_board_of_the_document_is_emulated():
    with World(up=False) as world:
        write_files(world.folder)
        command = re.search(r"^mete (emulate up --boards .*)$", DOCUMENT, re.M)[1].split()
        done = world.mete(*command, "--dir", world.node, cwd=world.folder)
        require(done.returncode == 0, "the document's command fails", done.stderr)
        try:
            names = world.run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits", environment=world.without_mete()).stdout.splitlines()
            require(names == ["NVIDIA Workbench 6GB, 6144", "Tesla T4, 15360"], "not the boards that were written", *names)
            held = world.run("tenant", "hold", 1 << 30, environment=world.without_mete(), input="")
            require(held.returncode == 0, "a program cannot use the board", held.stdout, held.stderr)
        finally:
            world.mete("emulate", "down", "--dir", world.node)


def the_scenario_of_the_document_holds():
    with World(up=False) as world:
        write_files(world.folder)
        done = world.run("mete-simulate", "--check", world.folder / "scenario.yaml")
        require(done.returncode == 0, "the scenario does not hold", done.stdout, done.stderr)
        again = [world.run("mete-simulate", "--json", world.folder / "scenario.yaml").stdout for _ in range(2)]
        require(again[0] == again[1] and json.loads(again[0])[0]["held"], "two runs differ")


def what_is_wrong_in_the_files_is_named_with_its_line():
    with World(up=False) as world:
        write_files(world.folder)
        boards, scenario = world.folder / "my-boards/boards.yaml", world.folder / "scenario.yaml"
        text = boards.read_text()
        boards.write_text(text.replace("sm_count: 20", "sm_count: many"))
        done = world.mete("emulate", "up", "--boards", world.folder / "my-boards", "--gpus", "Workbench-6GB", "--dir", world.node)
        require(done.returncode == 2 and "line" in done.stderr and "sm_count" in done.stderr, "not said what is wrong", done.stderr)
        boards.write_text(text.replace("workbench-6gb", "other-6gb"))
        done = world.mete("emulate", "up", "--boards", world.folder / "my-boards", "--gpus", "other-6gb", "--dir", world.node)
        require(done.returncode == 4 and "emulator.yaml lacks" in done.stderr, "not said that the clocks are missing", done.stderr)
        boards.write_text(text)
        scenario.write_text(scenario.read_text().replace("processes: 3", "processes: -3"))
        done = world.run("mete-simulate", scenario)
        require(done.returncode == 2 and "scenario.yaml:9:" in done.stderr, "not said where", done.stderr)


if __name__ == "__main__":
    main([the_board_of_the_document_is_emulated, the_scenario_of_the_document_holds, what_is_wrong_in_the_files_is_named_with_its_line])
