package clients

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/postdate/postdate/internal/proctest"
)

// quickJava keeps a Java that runs for seconds on two cores, and each that it starts, from optimizing what it runs,
// and from collecting garbage on several threads.
const quickJava = "JAVA_TOOL_OPTIONS=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

// builtJava is the folder of the Java client, which is built once: its classes are generated from the document,
// compiled, linted and tested, and packed.
var builtJava = sync.OnceValues(func() (string, error) {
	repository, err := output("", "bash", "../.ci/javatools")
	if err != nil {
		return "", err
	}
	dir, err := copyClient(builds, "java")
	if err != nil {
		return "", err
	}
	_, err = output(dir, "env", quickJava, "mvn", "-o", "-q", "-B", "-Dmaven.repo.local="+repository, "verify")
	return dir, err
})

// newJava returns the folder of the Java client. It skips the test where the machine has no Java.
func newJava(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs tools from Maven's repository")
	}
	dir, err := builtJava()
	need(t, err)
	proctest.Part(t, "java", func() (string, error) {
		return "java: the Java client, made by openapi-generator, as its pom.xml pins it", nil
	})
	return dir
}

// The Java client delivers the first message of its README, from an empty folder.
func TestJavaPackage(t *testing.T) {
	t.Parallel()
	java := newJava(t)
	for _, kind := range []string{"", "-sources", "-javadoc"} {
		if _, err := os.Stat(filepath.Join(java, "target/postdate-client-0.1.0"+kind+".jar")); err != nil {
			t.Error(err)
		}
	}
	jar, err := zip.OpenReader(filepath.Join(java, "target/postdate-client-0.1.0.jar"))
	if err != nil {
		t.Fatal(err)
	}
	defer jar.Close()
	license, err := fs.ReadFile(jar, "META-INF/LICENSE")
	if err != nil {
		t.Error(err)
	}
	checkLicense(t, license)
	readme, err := os.ReadFile("java/README.md")
	if err != nil {
		t.Fatal(err)
	}
	user := t.TempDir()
	first := regexp.MustCompile("(?s)```java\n(.*?)```").FindSubmatch(readme)
	if err := os.WriteFile(filepath.Join(user, "First.java"), first[1], 0o644); err != nil {
		t.Fatal(err)
	}
	classes := filepath.Join(java, "target/*") + ":" + filepath.Join(java, "target/lib/*")
	said, err := output(user, "env", quickJava, "POSTDATE_SERVER="+newNode(t).url, "POSTDATE_API_KEY="+adminKey,
		"java", "-cp", classes, "First.java")
	if err != nil || !strings.Contains(said, "arrived") || !strings.Contains(said, "{order=42}") {
		t.Errorf("the first message does not arrive: %v\n%s", err, said)
	}
}

// The Java client plays the scenario.
func TestScenarioJava(t *testing.T) {
	t.Parallel()
	target := filepath.Join(newJava(t), "target")
	classes := strings.Join([]string{target + "/classes", target + "/test-classes", target + "/lib/*"}, ":")
	newHarness(t).play(exec.CommandContext(t.Context(), "env", quickJava, "java", "-cp", classes, "io.postdate.client.ScenarioPlayer"))
}
