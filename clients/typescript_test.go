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
	w := newClient(t, "typescript")
	if err := os.Symlink(filepath.Join(w.tools, "typescript/node_modules"), filepath.Join(w.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return w
}

// The TypeScript client has the types of the document, passes its linters and its own tests, and delivers the first
// message of its README once it is installed in an empty folder.
func TestTypeScriptPackage(t *testing.T) {
	t.Parallel()
	w := newTypeScript(t)
	kept := w.read("src/generated.ts")
	w.run("npm", "run", "generate")
	if !bytes.Equal(kept, w.read("src/generated.ts")) {
		t.Error("src/generated.ts is not what the document makes: run npm run generate in clients/typescript")
	}
	w.run("npm", "run", "lint")
	w.run("npm", "test")

	w.run("npm", "pack")
	user := &workshop{t, t.TempDir(), w.tools}
	user.run("npm", "install", "--offline", "--no-audit", "--no-fund", filepath.Join(w.dir, "postdate-client-0.1.0.tgz"))
	checkLicense(t, user.read("node_modules/@postdate/client/LICENSE"))
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
