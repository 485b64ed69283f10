"""Makes src/postdate/models.py and src/postdate/problems.py from the OpenAPI document.

python generate.py ../../api/openapi.json src/postdate
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# What these say is the server's to judge: an operator may set other limits, and a later version have more fields.
LIMITS = {"minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "maxProperties"}
LIMITS |= {"minProperties", "propertyNames", "dependentRequired", "additionalProperties", "examples"}

DURATIONS = {"delay", "every", "jitter", "misfireAfter", "minBackoff", "maxBackoff", "maxParked", "expires"}
DURATIONS |= {"wait", "visibility"}

# The message that is scheduled has the plain name, and what the server has of it the longer one.
NAMES = {"Message": "StoredMessage", "Schedule": "Message"}

GENERATOR = """
    datamodel-codegen --input-file-type openapi --output-model-type pydantic_v2.BaseModel
    --base-class postdate._model.Model --target-python-version 3.10 --snake-case-field --no-alias
    --use-annotated --enum-field-as-literal all --use-type-alias --use-schema-description --use-field-description
    --disable-timestamp --use-double-quotes --formatters builtin
"""

PROBLEM = """

class {name}(ProblemError):
    \"\"\"The problem {short}.\"\"\"
"""


def adapt(schema: Any) -> None:
    """Drops limits, and makes durations of texts that are some."""
    if isinstance(schema, list):
        for each in schema:
            adapt(each)
    if not isinstance(schema, dict):
        return
    for name in LIMITS & schema.keys():
        if name != "additionalProperties" or isinstance(schema[name], bool):
            del schema[name]
    for name, field in schema.get("properties", {}).items():
        if name in DURATIONS:
            field["format"] = "duration"
    for each in schema.values():
        adapt(each)


def problems_of(types: list[str]) -> str:
    """Returns a module with an exception for each type of problem."""
    module = '"""The exceptions of the API\'s problems, made by generate.py."""\n\nfrom .errors import ProblemError\n'
    table, names = "", []
    for each in types:
        short = each.rsplit(":", 1)[1]
        name = "".join(word.capitalize() for word in short.split("-")) + "Error"
        module += PROBLEM.format(name=name, short=short)
        names.append(name)
        table += f'    "{each}": {name},\n'
    return module + f"\n\nBY_TYPE: dict[str, type[ProblemError]] = {{\n{table}}}\n\n__all__ = {sorted(names)}\n"


def main(document: Path, folder: Path) -> None:
    """Writes the modules into a folder."""
    text = document.read_text()
    for name, to in NAMES.items():
        text = text.replace(f'"#/components/schemas/{name}"', f'"#/components/schemas/{to}"')
    whole = json.loads(text)
    schemas = {NAMES.get(name, name): schema for name, schema in whole["components"]["schemas"].items()}
    adapt(schemas)
    only = {"openapi": whole["openapi"], "info": whole["info"], "paths": {}, "components": {"schemas": schemas}}
    models, problems = folder / "models.py", folder / "problems.py"
    subprocess.run([*GENERATOR.split(), "--output", models], input=json.dumps(only), text=True, check=True)
    with models.open("a") as file:
        file.write(f"\n__all__ = {sorted(schemas)}\n")
    problems.write_text(problems_of(schemas["ProblemType"]["enum"]))
    for tidy in (["format"], ["check", "--fix"], ["format"]):
        subprocess.run(["ruff", *tidy, "--quiet", models, problems], check=True)


main(*map(Path, sys.argv[1:]))
