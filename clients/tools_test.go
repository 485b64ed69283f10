package clients

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/proctest"
)

// noLanguage is the exit code of what fetches tools on a machine without their language: Python or Java.
const noLanguage = 3

// fetched is the folder with the tools, which are fetched once.
var fetched = sync.OnceValues(func() (string, error) { return output("", "bash", "../.ci/clienttools") })

// output runs a program of the system in a folder and returns what it printed.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = errors.Join(err, errors.New(string(out)+said.String()))
	}
	return strings.TrimSpace(string(out)), err
}

// need ends a test without its tools. It skips it where the machine does not have their language.
func need(t *testing.T, err error) {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == noLanguage:
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// copyClient copies a client into a folder, with what it finds beside it in the repository: the document, and what
// receivers are tested with. It leaves out what somebody has built. It returns the client's folder.
func copyClient(to, language string) (string, error) {
	dir := filepath.Join(to, "clients", language)
	files := map[string]string{
		"../api/openapi.json":     filepath.Join(to, "api/openapi.json"),
		"scenario/receivers.json": filepath.Join(to, "clients/scenario/receivers.json"),
	}
	err := filepath.WalkDir(language, func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && builtDirs.MatchString(entry.Name()) {
			return filepath.SkipDir
		}
		if err == nil && entry.Type().IsRegular() {
			files[path] = filepath.Join(to, "clients", path)
		}
		return err
	})
	for from, to := range files {
		text, failed := os.ReadFile(from)
		err = errors.Join(err, failed, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
	}
	return dir, err
}

// builtDirs are the folders that the tools of a client make.
var builtDirs = regexp.MustCompile(`^(dist|node_modules|target|__pycache__|\..*_cache)$`)

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
	need(t, err)
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

// newClient makes a workshop in a copy of a client.
func newClient(t *testing.T, language string) *workshop {
	t.Helper()
	w := newWorkshop(t)
	dir, err := copyClient(w.dir, language)
	if err != nil {
		t.Fatal(err)
	}
	return &workshop{t, dir, w.tools}
}

// checkLicense checks that a package has the repository's licence in it.
func checkLicense(t *testing.T, packed []byte) {
	t.Helper()
	license, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed, license) {
		t.Error("the licence in the package is not that of the repository: copy LICENSE into the client's folder")
	}
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
