// Package console is the web console: the files that browsers load, which are inside the binary. They are written in
// TypeScript in the folder app and built into the folder dist, which is committed, so that Go alone builds a node:
// `make console` builds them anew, and a test shows that they are those of the sources.
//
// The console uses only the public API, with the key of whoever looks, so it can do nothing that its user could not do
// without it. It loads nothing from elsewhere. [Policy] has the browser hold it to both.
package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io/fs"
	"mime"
	"path"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// File is a file as it is sent.
type File struct {
	Body, Gzip   []byte
	ContentType  string
	CacheControl string
}

// assets is the folder of files whose names come from their content: another content has another name.
const assets = "assets/"

// files are all files by their path below the console.
var files = sync.OnceValue(func() map[string]File {
	files := make(map[string]File)
	root, _ := fs.Sub(dist, "dist")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(root, name)
		file := File{Body: body, Gzip: compressed(body), ContentType: mime.TypeByExtension(path.Ext(name)),
			CacheControl: "no-cache"}
		if strings.HasPrefix(name, assets) {
			file.CacheControl = "public, max-age=31536000, immutable"
		}
		files[name] = file
		return err
	})
	if err != nil {
		panic(err) // a file inside the binary cannot be read
	}
	return files
})

func compressed(body []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	z.Write(body)
	z.Close()
	return b.Bytes()
}

// Page is the one page of the console.
func Page() File { return files()["index.html"] }

// Asset returns a file that the page loads, by its name.
func Asset(name string) (File, bool) {
	file, ok := files()[assets+name]
	return file, ok
}

// Policy is the Content-Security-Policy of the console, whose page may send requests to its own node and to these
// origins.
func Policy(connectTo []string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src " +
		strings.Join(append([]string{"'self'"}, connectTo...), " ") +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
		"; require-trusted-types-for 'script'; trusted-types 'none'"
}
