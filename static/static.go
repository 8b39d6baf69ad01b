// Package static is what browsers load: one stylesheet, a few scripts, fonts and an icon, embedded and served under
// names that carry a hash of their content, so that they are cached without a time limit and never stale.
package static

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed css fonts js favicon.svg
var files embed.FS

// sheets are the parts of the one stylesheet, in cascade order.
var sheets = []string{"fonts", "tokens", "base", "shell", "numbers", "panels", "tables", "controls", "filters",
	"states", "charts", "cluster", "quote", "host", "signin", "admin", "front", "pages", "docs", "paper",
	"responsive", "motion"}

// scripts are the parts of the one script, in order: the libraries, then ours.
var scripts = []string{"htmx", "sse", "app"}

// The terminal's page alone loads what a terminal needs, which is more than everything else together.
var (
	terminalSheets  = []string{"xterm", "terminal"}
	terminalScripts = []string{"xterm", "xterm-fit", "terminal"}
)

// Assets serves the files. Make one with New.
type Assets struct {
	urls    map[string]string // "app.css" → "/static/app.1a2b3c4d.css"
	content map[string][]byte // by URL
	gzipped map[string][]byte // by URL; what compresses well
}

// New reads and hashes what is embedded. It panics when a part is missing: the binary was built wrong.
func New() *Assets {
	a := &Assets{map[string]string{}, map[string][]byte{}, map[string][]byte{}}
	err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !servedAlone(p) {
			return err
		}
		a.add(p, read(p))
		return nil
	})
	if err != nil {
		panic(err)
	}
	css := join("css", ".css", sheets)
	for name, url := range a.urls {
		css = bytes.ReplaceAll(css, []byte(`"/static/`+name+`"`), []byte(`"`+url+`"`))
	}
	a.add("app.css", css)
	a.add("app.js", join("js", ".js", scripts))
	a.add("terminal.css", join("css", ".css", terminalSheets))
	a.add("terminal.js", join("js", ".js", terminalScripts))
	return a
}

func servedAlone(p string) bool {
	return path.Ext(p) == ".woff2" || p == "favicon.svg"
}

func read(p string) []byte {
	b, err := files.ReadFile(p)
	if err != nil {
		panic(err)
	}
	return b
}

func join(dir, ext string, parts []string) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		b.Write(read(path.Join(dir, p+ext)))
		b.WriteString("\n")
	}
	return b.Bytes()
}

func (a *Assets) add(name string, content []byte) {
	sum := sha256.Sum256(content)
	ext := path.Ext(name)
	url := "/static/" + strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
	a.urls[name], a.content[url] = url, content
	if small := compress(content); len(small) < len(content)*9/10 {
		a.gzipped[url] = small
	}
}

// compress returns content as gzip at the best level, which is worth its time because it runs once per start.
func compress(content []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err)
	}
	if _, err := z.Write(content); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// URL is where an asset is served: "app.css", "app.js", "favicon.svg". It panics on an unknown name.
func (a *Assets) URL(name string) string {
	u, ok := a.urls[name]
	if !ok {
		panic("static: no asset " + name)
	}
	return u
}

// ServeHTTP serves what is under /static/.
func (a *Assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, ok := a.content[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentType(r.URL.Path))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if small, ok := a.gzipped[r.URL.Path]; ok {
		w.Header().Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			w.Header().Set("Content-Encoding", "gzip")
			b = small
		}
	}
	_, _ = w.Write(b)
}

// acceptsGzip reports whether an Accept-Encoding header (RFC 9110, 12.5.3) names gzip with a weight above 0.
func acceptsGzip(header string) bool {
	for coding := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(coding, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, weight, weighted := strings.Cut(params, "q=")
		q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		return !weighted || err == nil && q > 0
	}
	return false
}

func contentType(p string) string {
	if path.Ext(p) == ".woff2" {
		return "font/woff2" // not in every system's table
	}
	return mime.TypeByExtension(path.Ext(p))
}
