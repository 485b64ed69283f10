package clients

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// newTypeScript makes a workshop with the TypeScript client and its tools.
func newTypeScript(t *testing.T) *workshop {
	t.Helper()
	w := newWorkshop(t)
	for _, pattern := range []string{"typescript/*.*", "typescript/.prettier*", "typescript/src/*", "typescript/test/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w.write(strings.TrimPrefix(path, "typescript/"), text)
		}
	}
	if err := os.Symlink(filepath.Join(w.tools, "typescript", "node_modules"), filepath.Join(w.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return w
}

// The TypeScript client has the types of the document, passes its linters and its own tests, and delivers the first
// message of its README once it is installed in an empty folder.
func TestTypeScriptPackage(t *testing.T) {
	t.Parallel()
	w := newTypeScript(t)
	w.run("openapi-typescript", "openapi.json", "--output", "generated.ts")
	if made, kept := w.read("generated.ts"), w.read("src/generated.ts"); !bytes.Equal(made, kept) {
		t.Error("src/generated.ts is not what the document makes: run npm run generate in clients/typescript")
	}
	w.run("tsc")
	w.run("eslint", "src", "test", "eslint.config.js")
	w.run("prettier", "--check", "src", "test", "README.md", "package.json", "eslint.config.js")
	receivers, err := filepath.Abs("scenario/receivers.json")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(w.run("env", "POSTDATE_RECEIVERS="+receivers, "node", "--test", "test/*.test.ts"))

	w.run("npm", "pack")
	user := &workshop{t, t.TempDir(), w.tools}
	user.run("npm", "install", "--offline", "--no-audit", "--no-fund", filepath.Join(w.dir, "postdate-client-0.1.0.tgz"))
	first := regexp.MustCompile("(?s)```js\n(.*?)```").FindSubmatch(w.read("README.md"))
	user.write("first.mjs", first[1])
	said, _ := user.run("env", "POSTDATE_SERVER="+newNode(t).url, "POSTDATE_API_KEY="+adminKey, "node", "first.mjs")
	if !strings.Contains(said, "arrived") || !strings.Contains(said, "{ order: 42 }") {
		t.Errorf("the first message does not arrive: %s", said)
	}
}

// The TypeScript client plays the scenario.
func TestScenarioTypeScript(t *testing.T) {
	t.Parallel()
	w := newTypeScript(t)
	newHarness(t).play(w.command("node", "test/player.ts"))
}
