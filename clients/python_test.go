package clients

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The Python client has the types of the document, passes its linters and its own tests, and delivers the first
// message of its README once it is installed in an empty folder.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	w := newClient(t, "python")
	models, problems := w.read("src/postdate/models.py"), w.read("src/postdate/problems.py")
	w.run("python", "generate.py", "../../api/openapi.json", "src/postdate")
	if !bytes.Equal(models, w.read("src/postdate/models.py")) || !bytes.Equal(problems, w.read("src/postdate/problems.py")) {
		t.Error("models.py or problems.py is not what the document makes: see clients/python/README.md")
	}
	w.run("ruff", "check")
	w.run("ruff", "format", "--check")
	w.run("mypy")
	w.run("env", "PYTHONPATH=src", "pytest", "-q", "-W", "error")

	user := newPythonUser(t, w)
	license, _ := user.run("venv/bin/python", "-c",
		"import importlib.metadata as m; print(m.distribution('postdate-client').read_text('licenses/LICENSE'), end='')")
	checkLicense(t, []byte(license))
	first := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(w.read("README.md"))
	user.write("first.py", first[1])
	user.run("mypy", "--strict", "--python-executable", "venv/bin/python", "first.py")
	said, _ := user.run("env", "POSTDATE_SERVER="+newNode(t).url, "POSTDATE_API_KEY="+adminKey,
		"venv/bin/python", "first.py")
	if !strings.Contains(said, "arrived") || !strings.Contains(said, "{'order': 42}") {
		t.Errorf("the first message does not arrive: %s", said)
	}
}

// newPythonUser makes a workshop in which the client of another one is installed, in a virtual environment that takes
// what the client needs from the tools' packages.
func newPythonUser(t *testing.T, w *workshop) *workshop {
	t.Helper()
	w.run("pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".")
	wheel := filepath.Join(w.dir, "dist", "postdate_client-0.1.0-py3-none-any.whl")
	user := &workshop{t, t.TempDir(), w.tools}
	user.run("python", "-m", "venv", "--without-pip", "venv")
	where := "import sysconfig; print(sysconfig.get_path('purelib'))"
	packages, _ := user.run("python", "-c", where)
	folder, _ := user.run("venv/bin/python", "-c", where)
	if err := os.WriteFile(filepath.Join(strings.TrimSpace(folder), "tools.pth"), []byte(packages), 0o644); err != nil {
		t.Fatal(err)
	}
	user.run("pip", "--python", "venv/bin/python", "install", "--quiet", "--no-index", wheel)
	return user
}

// The Python client plays the scenario.
func TestScenarioPython(t *testing.T) {
	t.Parallel()
	w := newClient(t, "python")
	newHarness(t).play(w.command("env", "PYTHONPATH=src", "python", "tests/player.py"))
}
