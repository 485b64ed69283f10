package console

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postdate/postdate/internal/proctest"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// compressedMax bounds what a browser loads for the console, in bytes.
const compressedMax = 150 << 10

// The console stays small: all of its files together, not only those of one page.
func TestTheConsoleIsSmall(t *testing.T) {
	sum := 0
	for _, file := range files() {
		sum += min(len(file.Body), len(file.Gzip))
	}
	t.Logf("%d bytes, compressed", sum)
	if sum > compressedMax {
		t.Errorf("the console has %d bytes, compressed: at most %d", sum, compressedMax)
	}
}

// Browsers keep what the page loads, and never the page itself: it names what belongs to this version.
func TestFiles(t *testing.T) {
	page := Page()
	if page.ContentType != "text/html; charset=utf-8" || page.CacheControl != "no-cache" {
		t.Errorf("the page is %q, cached %q", page.ContentType, page.CacheControl)
	}
	for _, loaded := range regexp.MustCompile(`(?:src|href)="/console/assets/([^"]+)"`).FindAllSubmatch(page.Body, -1) {
		file, ok := Asset(string(loaded[1]))
		if !ok || file.ContentType == "" || !strings.Contains(file.CacheControl, "immutable") {
			t.Errorf("%s is there: %v, as %q, cached %q", loaded[1], ok, file.ContentType, file.CacheControl)
		}
	}
	if _, ok := Asset("index-old.js"); ok {
		t.Error("a file of another version is there")
	}
}

// app is a copy of the console's sources, with its tools.
type app struct {
	t          *testing.T
	dir, tools string
}

func newApp(t *testing.T) *app {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs tools from npm")
	}
	tools, err := exec.Command("bash", "../.ci/clienttools").Output()
	if err != nil {
		t.Fatalf("%v: make deps installs what it needs", err)
	}
	root := t.TempDir()
	a := &app{t, filepath.Join(root, "console", "app"), strings.TrimSpace(string(tools))}
	copyTree(t, "app", a.dir)
	const types = "clients/typescript/src/generated.ts" // a test of the clients shows that they are the document's
	copyTree(t, filepath.Join("..", types), filepath.Join(root, types))
	if err := os.Symlink(filepath.Join(a.tools, "console", "node_modules"), filepath.Join(a.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return a
}

// copyTree copies a file, or a folder without what somebody has built or installed in it.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "node_modules" || name == "test-results" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, _ := filepath.Rel(from, path)
		target := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a tool of the console, which must succeed.
func (a *app) run(env []string, name string, args ...string) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), filepath.Join(a.dir, "node_modules", ".bin", name), args...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(a.tools, "bin")+":"+os.Getenv("PATH"), "NO_COLOR=1")
	cmd.Env = append(cmd.Env, env...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("%s %q: %v\n%s", name, args, err, said)
	}
	return string(said)
}

// The committed files are those that the sources make.
func TestBuiltFilesAreThoseOfTheSources(t *testing.T) {
	a := newApp(t)
	a.run(nil, "tsc", "--noEmit")
	a.run(nil, "vite", "build")
	same(t, "dist", filepath.Join(a.dir, "../dist"))
	same(t, filepath.Join(a.dir, "../dist"), "dist")
}

// same checks that every file of a folder, or one file, is the same in another place.
func same(t *testing.T, left, right string) {
	t.Helper()
	err := filepath.WalkDir(left, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(left, path)
		a, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(right, rel))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not what the sources make (%v): run make console", path, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The pages, in a real Chromium, against real nodes: the tests are in app/tests.
func TestInChromium(t *testing.T) {
	a := newApp(t)
	browser := chromium(t)
	binary, plain := filepath.Join(t.TempDir(), "postdate"), filepath.Join(t.TempDir(), "plain")
	waits := []func(){build(t, "-race", "-o", binary), build(t, "-o", plain)} // while the brokers start
	args := []string{"test"}
	if only := os.Getenv("POSTDATE_TEST_CONSOLE"); only != "" { // while working on one page
		args = append(args, strings.Fields(only)...)
	}
	env := append(brokers(t),
		"POSTDATE_TEST_BINARY="+binary,
		"POSTDATE_TEST_PLAIN_BINARY="+plain,
		"POSTDATE_TEST_CHROMIUM="+browser,
		"POSTDATE_TEST_MONGODB_URI="+mongotest.Fresh(t),
		"POSTDATE_TEST_FIGURES_URI="+mongotest.Fresh(t),
	)
	for _, wait := range waits {
		wait()
	}
	t.Log(a.run(env, "playwright", args...))
}

// build begins to build the binary, and returns what waits for that.
func build(t *testing.T, flags ...string) (wait func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, flags...), "../cmd/postdate")...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, &said)
		}
	}
}

// chromium finds the browser, and says which one it is.
func chromium(t *testing.T) string {
	t.Helper()
	path := os.Getenv("POSTDATE_TEST_CHROMIUM")
	if path == "" {
		var err error
		if path, err = exec.LookPath("chromium-headless-shell"); err != nil {
			t.Fatalf("%v: make deps installs it; or name a Chromium in POSTDATE_TEST_CHROMIUM", err)
		}
	}
	proctest.Part(t, "chromium", func() (string, error) {
		version, err := exec.Command(path, "--version").Output()
		return "Console: in " + strings.TrimSpace(string(version)) + ", " + filepath.Base(path), err
	})
	return path
}
