package clients

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/proctest"
)

// noLanguage is the exit code of what fetches tools on a machine without their language: Python or Java.
const noLanguage = 3

// fetched is the folder with the tools, which are fetched once.
var fetched = sync.OnceValues(func() (string, error) {
	fetch := exec.Command("bash", "../.ci/clienttools")
	var said bytes.Buffer
	fetch.Stderr = &said
	dir, err := fetch.Output()
	if err != nil {
		err = errors.Join(err, errors.New(said.String()))
	}
	return strings.TrimSpace(string(dir)), err
})

// workshop is a folder in which a test runs tools.
type workshop struct {
	t     *testing.T
	dir   string
	tools string
}

// newWorkshop makes a workshop with the document and some files of testdata. It skips the test where the
// tools need a language that the machine does not have.
func newWorkshop(t *testing.T, files ...string) *workshop {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs tools from PyPI and npm")
	}
	tools, err := fetched()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == noLanguage:
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	proctest.Part(t, "clients", func() (string, error) {
		return "clients: made by openapi-python-client and openapi-typescript, as clients/testdata pins them", nil
	})
	w := &workshop{t, t.TempDir(), tools}
	w.write("openapi.json", api.OpenAPI)
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		w.write(name, text)
	}
	return w
}

func (w *workshop) write(name string, text []byte) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workshop) read(name string) []byte {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// run runs a tool, which must succeed, and returns what it printed.
func (w *workshop) run(name string, args ...string) (stdout, stderr string) {
	w.t.Helper()
	stdout, stderr, err := w.try(name, args...)
	if err != nil {
		w.t.Fatalf("%s %q: %v\n%s%s", name, args, err, stdout, stderr)
	}
	return stdout, stderr
}

// try is run, for a tool that may fail.
func (w *workshop) try(name string, args ...string) (stdout, stderr string, err error) {
	cmd := w.command(name, args...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	err = cmd.Run()
	return out.String(), failed.String(), err
}

// command returns the command of a tool: that of the workshop's own packages, if it has some, else the one that all
// share, else the system's.
func (w *workshop) command(name string, args ...string) *exec.Cmd {
	path := name // of the system
	for _, folder := range []string{w.dir + "/node_modules/.bin", w.tools + "/node_modules/.bin", w.tools + "/bin"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			path = filepath.Join(folder, name)
			break
		}
	}
	cmd := exec.CommandContext(w.t.Context(), path, args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(w.tools, "bin")+":"+os.Getenv("PATH"), "NO_COLOR=1")
	return cmd
}
