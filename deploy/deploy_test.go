package deploy_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/postdate/postdate"
)

// No container engine runs where these tests do. What can be held without one is
// held here: that every file is well formed, that files agree with each other, and
// that they name only flags, commands and metrics that exist.

type object = map[string]any

// documents parses all of a YAML file. A key that stands twice is an error.
func documents(t *testing.T, path string) (all []object) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	for {
		var d object
		if err := decoder.Decode(&d); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, d)
	}
}

// at follows a path of keys and list positions; nil where it leads nowhere.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(object)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func object1(v any) object { m, _ := v.(object); return m }

func texts(v any) (all []string) {
	l, _ := v.([]any)
	for _, e := range l {
		all = append(all, fmt.Sprint(e))
	}
	return all
}

// settings are the environment variables that a node knows, its flags, and the key that its health
// check sends.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{"POSTDATE_API_KEY": strings.Contains(help(t, "cluster"), "POSTDATE_API_KEY")}
	for _, m := range regexp.MustCompile(`(?m)^ +--([a-z-]+)`).FindAllStringSubmatch(help(t, "serve"), -1) {
		known["POSTDATE_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))] = true
	}
	if !known["POSTDATE_STORE"] {
		t.Fatalf("the help of serve names no --store: it names %v", slices.Sorted(maps.Keys(known)))
	}
	return known
}

var helps = map[string]string{}

// help is what the command itself says; nothing where there is no such command.
func help(t *testing.T, command ...string) string {
	t.Helper()
	key := strings.Join(command, " ")
	if _, ok := helps[key]; !ok {
		out, err := exec.Command("go", append(append([]string{"run", "../cmd/postdate"}, command...), "--help")...).CombinedOutput()
		if err != nil {
			t.Logf("postdate %s --help: %v\n%s", key, err, out)
			out = nil
		}
		helps[key] = string(out)
	}
	return helps[key]
}

// checkCommand holds that the binary has a command.
func checkCommand(t *testing.T, where string, words []string) {
	t.Helper()
	use := "postdate " + strings.Join(words, " ")
	if !strings.Contains(help(t, words...), use) {
		t.Errorf("%s runs %q, which is no command", where, use)
	}
}

func TestEveryFileIsWellFormed(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		switch filepath.Ext(path) {
		case ".yaml", ".yml":
			if len(documents(t, path)) == 0 {
				t.Errorf("%s is empty", path)
			}
		case ".json":
			text, err := os.ReadFile(path)
			var v any
			if err == nil {
				err = json.Unmarshal(text, &v)
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || seen < 10 {
		t.Errorf("saw %d files: %v", seen, err)
	}
}

// conditions of depends_on.
var conditions = []string{"service_started", "service_healthy", "service_completed_successfully"}

func TestCompose(t *testing.T) {
	known := settings(t)
	for _, path := range []string{"compose.yaml", "compose.sharded.yaml"} {
		t.Run(path, func(t *testing.T) {
			file := documents(t, path)[0]
			services := object1(file["services"])
			var join []string
			advertised := map[string]string{}
			for name, s := range services {
				checkService(t, file, name)
				environment := object1(at(s, "environment"))
				checkSettings(t, name, environment, known)
				if id := environment["POSTDATE_NODE_ID"]; id != nil {
					advertised[fmt.Sprint(environment["POSTDATE_GOSSIP_ADVERTISE"])] = fmt.Sprint(id)
					join = strings.Split(fmt.Sprint(environment["POSTDATE_JOIN"]), ",")
					checkCommand(t, name, []string{"serve"})
					key := fmt.Sprint(environment["POSTDATE_ADMIN_KEY"])
					if len(preset(key)) < postdate.AdminKeyBytesMin || environment["POSTDATE_API_KEY"] != key || environment["POSTDATE_INSECURE"] != nil {
						t.Errorf("%s does not ask for a key, or its health check has none: %v", name, environment)
					}
				}
			}
			if len(advertised) != 3 || len(join) != 3 {
				t.Fatalf("three nodes join three addresses, but %v join %v", advertised, join)
			}
			for _, address := range join {
				if host, _, _ := strings.Cut(address, ":"); advertised[address] != host || services[host] == nil {
					t.Errorf("--join names %s, which no node advertises", address)
				}
			}
		})
	}
}

func checkService(t *testing.T, file object, name string) {
	t.Helper()
	services := object1(file["services"])
	s := services[name]
	if at(s, "image") == nil {
		t.Errorf("%s has no image", name)
	}
	for other, d := range object1(at(s, "depends_on")) {
		condition := fmt.Sprint(at(d, "condition"))
		switch {
		case services[other] == nil:
			t.Errorf("%s depends on %s, which is not there", name, other)
		case !slices.Contains(conditions, condition):
			t.Errorf("%s waits for %s to be %s", name, other, condition)
		case condition == "service_healthy" && at(services[other], "healthcheck", "test") == nil:
			t.Errorf("%s waits for the health of %s, which has no check", name, other)
		case condition == "service_completed_successfully" && at(services[other], "restart") != "on-failure:10":
			t.Errorf("%s waits for the end of %s, which is started again and again", name, other)
		}
	}
	for _, p := range texts(at(s, "ports")) {
		if !strings.HasPrefix(p, "127.0.0.1:") {
			t.Errorf("%s publishes %s to the world", name, p)
		}
	}
	for _, v := range texts(at(s, "volumes")) {
		from, _, _ := strings.Cut(v, ":")
		if strings.HasPrefix(from, ".") {
			if _, err := os.Stat(from); err != nil {
				t.Errorf("%s mounts %s: %v", name, from, err)
			}
		} else if _, ok := object1(file["volumes"])[from]; !ok {
			t.Errorf("%s uses the volume %s, which is not declared", name, from)
		}
	}
	if at(s, "image") == "postdate" {
		if command := texts(at(s, "command")); len(command) > 0 {
			checkCommand(t, name, command)
		}
		for _, v := range []string{"read_only", "cap_drop", "security_opt", "stop_grace_period", "build"} {
			if at(s, v) == nil {
				t.Errorf("%s lacks %s", name, v)
			}
		}
		if test := texts(at(s, "healthcheck", "test")); len(test) > 2 {
			checkCommand(t, name, test[2:])
		}
	}
}

// checkSettings holds that a node knows each variable, and that keys are keys.
func checkSettings(t *testing.T, where string, environment object, known map[string]bool) {
	t.Helper()
	for name, value := range environment {
		if strings.HasPrefix(name, "POSTDATE_") && !known[name] {
			t.Errorf("%s sets %s, which is no flag of serve", where, name)
		}
		if text := preset(fmt.Sprint(value)); name == "POSTDATE_GOSSIP_KEY" && text != fmt.Sprint(value) {
			if key, err := base64.StdEncoding.DecodeString(text); err != nil || len(key) != 32 {
				t.Errorf("%s: the key %q is no base64 of 32 bytes", where, text)
			}
		}
	}
}

// preset is what a value of the form ${NAME:-preset} is if NAME is not set; others are as they are.
func preset(value string) string {
	if _, after, ok := strings.Cut(value, ":-"); ok && strings.HasPrefix(value, "${") {
		return strings.TrimSuffix(after, "}")
	}
	return value
}

func TestKubernetes(t *testing.T) {
	known := settings(t)
	kustomization := documents(t, "kubernetes/kustomization.yaml")[0]
	listed := append(texts(kustomization["resources"]), "kustomization.yaml")
	there, err := os.ReadDir("kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if !slices.Contains(listed, f.Name()) {
			t.Errorf("%s is not in kustomization.yaml", f.Name())
		}
	}
	if len(there) != len(listed) {
		t.Errorf("kustomization.yaml lists %v, and %d files are there", listed, len(there))
	}
	kinds := map[string][]object{}
	for _, f := range listed {
		for _, d := range documents(t, filepath.Join("kubernetes", f)) {
			kinds[fmt.Sprint(d["kind"])] = append(kinds[fmt.Sprint(d["kind"])], d)
		}
	}
	set := kinds["StatefulSet"][0]
	pod := at(set, "spec", "template", "spec")
	checkPod(t, pod)
	checkSettings(t, "settings.yaml", object1(at(kinds["ConfigMap"][0], "data")), known)
	checkSettings(t, "secret.yaml", object1(at(kinds["Secret"][0], "stringData")), known)
	key := fmt.Sprint(at(kinds["Secret"][0], "stringData", "POSTDATE_ADMIN_KEY"))
	if key == "<nil>" || len(key) >= postdate.AdminKeyBytesMin || at(kinds["ConfigMap"][0], "data", "POSTDATE_INSECURE") != nil {
		t.Errorf("nodes must ask for a key, and refuse the placeholder %q", key)
	}
	for _, e := range at(pod, "containers", 0, "env").([]any) {
		checkSettings(t, "statefulset.yaml", object{fmt.Sprint(at(e, "name")): at(e, "value")}, known)
	}
	labels := fmt.Sprint(at(set, "spec", "template", "metadata", "labels"))
	selectors := map[string]any{
		"StatefulSet": at(set, "spec", "selector", "matchLabels"), "PodDisruptionBudget": at(kinds["PodDisruptionBudget"][0], "spec", "selector", "matchLabels"),
		"NetworkPolicy": at(kinds["NetworkPolicy"][0], "spec", "podSelector", "matchLabels"),
	}
	for _, s := range kinds["Service"] {
		selectors[fmt.Sprint(at(s, "metadata", "name"))] = at(s, "spec", "selector")
	}
	for of, s := range selectors {
		if fmt.Sprint(s) != labels {
			t.Errorf("%s selects %v, and the pods are %s", of, s, labels)
		}
	}
	gossip := fmt.Sprint(at(set, "spec", "serviceName"))
	if selectors[gossip] == nil || at(kinds["ConfigMap"][0], "data", "POSTDATE_JOIN") != gossip+":7946" {
		t.Errorf("the nodes join %v, and the headless service is %s", at(kinds["ConfigMap"][0], "data", "POSTDATE_JOIN"), gossip)
	}
}

// stopSeconds is what an orderly stop may take, as docs/operations.md says.
const stopSeconds = 30

func checkPod(t *testing.T, pod any) {
	t.Helper()
	container := at(pod, "containers", 0)
	sleep, _ := at(container, "lifecycle", "preStop", "sleep", "seconds").(uint64)
	if grace, _ := at(pod, "terminationGracePeriodSeconds").(uint64); grace < sleep+stopSeconds+10 {
		t.Errorf("a pod gets %d s to end: the sleep of %d s and a stop of %d s want more", grace, sleep, stopSeconds)
	}
	if at(pod, "securityContext", "runAsNonRoot") != true {
		t.Error("the pod runs as root")
	}
	for _, c := range []any{container, at(pod, "initContainers", 0)} {
		checkCommand(t, "statefulset.yaml", texts(at(c, "args")))
		if at(c, "securityContext", "readOnlyRootFilesystem") != true || at(c, "securityContext", "allowPrivilegeEscalation") != false {
			t.Errorf("%v can write to its image, or gain privileges", at(c, "name"))
		}
	}
	for probe, path := range map[string]string{"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
		if got := at(container, probe, "httpGet", "path"); got != path {
			t.Errorf("%s asks %v", probe, got)
		}
	}
}

// The image is built by a Go that is new enough, and runs without root.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	wants := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))[1]
	if !strings.Contains(string(text), "golang:"+wants+"-") {
		t.Errorf("go.mod wants Go %s, and the image is built by another one", wants)
	}
	stages := strings.Split(string(text), "\nFROM ")
	last := stages[len(stages)-1]
	for _, want := range []string{"USER 65532:65532", `ENTRYPOINT ["/postdate"]`, `CMD ["serve"]`, "org.opencontainers.image.licenses", "STOPSIGNAL SIGTERM"} {
		if !strings.Contains(last, want) {
			t.Errorf("the image lacks %s", want)
		}
	}
	known := settings(t)
	for _, m := range regexp.MustCompile(`(POSTDATE_[A-Z_]+)=`).FindAllStringSubmatch(last, -1) {
		if !known[m[1]] {
			t.Errorf("the image sets %s, which is no flag of serve", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`COPY --from=(\S+)`).FindAllStringSubmatch(last, -1) {
		if !strings.Contains(string(text), " AS "+m[1]+"\n") {
			t.Errorf("the image copies from %s, which is no stage", m[1])
		}
	}
}
