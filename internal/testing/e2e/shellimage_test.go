package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// shellPrograms are what an image with a shell has: this machine's own programs, with the libraries they name.
var shellPrograms = []string{"sh", "bash", "cat", "echo", "env", "grep", "id", "ls", "mkdir", "nohup", "perl", "ps",
	"pwd", "rm", "sha256sum", "sleep", "stty", "touch", "tty", "wc", "yes"}

// shellImage pushes an image with a shell and the usual small programs, whose command waits to be ended.
func (p *platform) shellImage(t *testing.T) string {
	t.Helper()
	img, err := shellImage()
	if err != nil {
		t.Fatal(err)
	}
	to, err := name.NewTag(p.registry()+"/test/shell:latest", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

var shellImage = sync.OnceValues(func() (v1.Image, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"bin/", "etc/", "lib/", "root/", "tmp/", "work/"} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := put(w, "etc/passwd", []byte("root:x:0:0:root:/root:/bin/bash\n"), 0o644); err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, program := range shellPrograms {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("the test's image: %w", err)
		}
		if err := copyProgram(w, have, path, "bin/"+program); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())),
			nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Config = v1.Config{Cmd: []string{"sleep", "3600"}, Env: []string{"PATH=/bin", "COLOUR=teal"}, WorkingDir: "/work"}
	return mutate.ConfigFile(img, cfg)
})

var library = regexp.MustCompile(`(/\S+) \(0x`)

// copyProgram puts a program into the image, and each library the loader would look for where it would look.
func copyProgram(w *tar.Writer, have map[string]bool, path, to string) error {
	libraries, err := exec.Command("ldd", path).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", path, err)
	}
	files := map[string]string{to: path}
	for _, m := range library.FindAllStringSubmatch(string(libraries), -1) {
		files[m[1][1:]] = m[1]
	}
	for to, from := range files {
		if have[to] {
			continue
		}
		have[to] = true
		real, err := filepath.EvalSymlinks(from)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(real)
		if err != nil {
			return err
		}
		if err := put(w, to, body, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func put(w *tar.Writer, path string, body []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{
		Name:     path,
		Typeflag: tar.TypeReg,
		Mode:     mode,
		Size:     int64(len(body)),
	}); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}
