"""Reads deploy/kubernetes.yaml. `args`: the container's command line, one argument a line, with what Kubernetes fills in taken from the
environment. `check`: that the parts fit together; prints what does not."""

import os
import re
import sys
import yaml

path, what = sys.argv[1:3]
with open(path) as file:
    objects = list(yaml.safe_load_all(file))
kinds = {item["kind"]: item for item in objects}
pod = kinds["Deployment"]["spec"]["template"]
container = pod["spec"]["containers"][0]
given = {entry["name"] for entry in container["env"]}


def filled(text):
    return re.sub(r"\$\((\w+)\)", lambda found: os.environ[found[1]], text)


if what == "args":
    print("\n".join(filled(argument) for argument in container["args"]))
    sys.exit()

wrong = []
used = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
if used != given:
    wrong.append(f"args use {used}, and env gives {given}")
labels = pod["metadata"]["labels"]
for kind, labels_of in [
    ("Deployment", lambda spec: spec["selector"]["matchLabels"]),
    ("Service", lambda spec: spec["selector"]),
    ("PodDisruptionBudget", lambda spec: spec["selector"]["matchLabels"]),
]:
    if labels_of(kinds[kind]["spec"]) != labels:
        wrong.append(f"{kind} selects other pods than the Deployment makes")
ports = {port["name"]: port["containerPort"] for port in container["ports"]}
listen = next(argument for argument in container["args"] if argument.startswith("--listen="))
if not listen.endswith(f":{ports['http']}"):
    wrong.append(f"{listen} is not the container's port {ports['http']}")
for probe in ["readinessProbe", "livenessProbe"]:
    if container[probe]["httpGet"] != {"path": "/health", "port": "http"}:
        wrong.append(f"{probe} asks elsewhere")
mounted = {mount["name"] for mount in container["volumeMounts"]}
if mounted != {volume["name"] for volume in pod["spec"]["volumes"]}:
    wrong.append("volumes and mounts differ")
secrets = {source["secretRef"]["name"] for source in container["envFrom"]}
if secrets != {kinds["Secret"]["metadata"]["name"]}:
    wrong.append(f"the container reads the secrets {secrets}")
if pod["spec"]["terminationGracePeriodSeconds"] < 3 + 8 + 3 + 10:
    wrong.append("a pod is killed before it has given its units away")
print("\n".join(wrong))
sys.exit(bool(wrong))
