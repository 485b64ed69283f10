package kafkatest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postdate/postdate/internal/proctest"
)

// version is the version of Kafka that tests run.
const version = "4.1.1"

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>postdate</groupId><artifactId>kafkatest</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + version + `</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// jars returns the folder with Kafka's programs; the first test on a machine downloads them: 43
// MB. Tests that download at the same time do not disturb each other.
func jars() (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("this test needs a Kafka broker, and that needs Java 17: "+
			"run `make deps` to install it, or name a broker in POSTDATE_TEST_KAFKA (%w)", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "postdate")
	dir := filepath.Join(cache, "kafka-"+version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", fmt.Errorf("this test needs a Kafka broker, which Maven fetches: "+
			"run `make deps` to install it, or name a broker in POSTDATE_TEST_KAFKA (%w)", err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), []byte(pom), 0o644); err != nil {
		return "", err
	}
	fetched := filepath.Join(work, "jars")
	mvn := exec.Command("mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
		"-DoutputDirectory="+fetched)
	mvn.Dir = work
	if out, err := mvn.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch Kafka %s with Maven: %w\n%s", version, err, out)
	}
	if err := os.Rename(fetched, dir); err != nil {
		if _, other := os.Stat(dir); other != nil {
			return "", err
		}
	}
	return dir, nil
}

// part tells the test command which broker was used.
func part(t testing.TB, how string) {
	t.Helper()
	proctest.Part(t, "kafka, "+how, func() (string, error) {
		if how == started {
			return "kafka " + version + ": real, " + how, nil
		}
		return "kafka: real, " + how, nil
	})
}
