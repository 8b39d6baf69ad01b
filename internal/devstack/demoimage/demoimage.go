// Package demoimage builds the demo's image from a static binary, without a container engine, and pushes it.
//
// Invariant: the same binary gives the same digest on every machine at any time. Layers are written in a fixed order,
// owned by root and dated at the epoch.
package demoimage

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/musterhq/muster/internal/fault"
)

// Repository is the image's name in the registry.
const Repository = "muster/demo"

// Program is the demo job inside the image, its entry point.
const Program = "/usr/local/bin/muster-demo-job"

// Push builds the image around the program at jobPath (cmd/muster-demo-job, built static) and pushes it to the
// registry at addr (host:port). It returns the reference with tag "addr/muster/demo:latest" and the digest. The same
// binary gives the same digest; pushing again uploads nothing. Errors are Unavailable faults.
func Push(ctx context.Context, addr, jobPath string) (ref, digest string, err error) {
	job, err := os.ReadFile(jobPath)
	if err != nil {
		return "", "", fault.New(fault.Unavailable, "the demo job was not built: %v", err)
	}
	img, err := Build(job)
	if err != nil {
		return "", "", fault.New(fault.Unavailable, "the demo image cannot be built: %v", err)
	}
	tag, err := name.NewTag(addr+"/"+Repository+":latest", name.Insecure)
	if err != nil {
		return "", "", fault.New(fault.Invalid, "%q is no registry: %v", addr, err)
	}
	if err := remote.Write(tag, img, remote.WithContext(ctx)); err != nil {
		return "", "", fault.New(fault.Unavailable, "the demo image cannot be pushed to %s: %v", addr, err)
	}
	hash, err := img.Digest()
	if err != nil {
		return "", "", fault.New(fault.Unavailable, "the demo image has no digest: %v", err)
	}
	return tag.Name(), hash.String(), nil
}

// Build returns the image around a static program for this machine's processor.
func Build(job []byte) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range [][]file{base, {{name: Program[1:], mode: 0o755, body: job}}} {
		layer, err := layerOf(files)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, err
		}
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	cfg.Config = v1.Config{
		Entrypoint: []string{Program},
		Cmd:        []string{"train"},
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		WorkingDir: "/",
	}
	return mutate.ConfigFile(img, cfg)
}

// file is one entry of a layer. A name that ends in / is a folder.
type file struct {
	name string
	mode int64
	body []byte
}

// base contains the files that a static program expects of a system.
var base = []file{
	{name: "etc/", mode: 0o755},
	{name: "etc/group", mode: 0o644, body: []byte("root:x:0:\nnogroup:x:65534:\n")},
	{
		name: "etc/os-release",
		mode: 0o644,
		body: []byte("ID=muster-demo\nNAME=\"Muster demo\"\nPRETTY_NAME=\"Muster demo job\"\n"),
	},
	{
		name: "etc/passwd",
		mode: 0o644,
		body: []byte("root:x:0:0:root:/root:/nonexistent\nnobody:x:65534:65534:nobody:/:/nonexistent\n"),
	},
	{name: "root/", mode: 0o700},
	{name: "tmp/", mode: 0o1777},
	{name: "usr/", mode: 0o755},
	{name: "usr/local/", mode: 0o755},
	{name: "usr/local/bin/", mode: 0o755},
}

func layerOf(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{
			Name:     f.name,
			Mode:     f.mode,
			Size:     int64(len(f.body)),
			Typeflag: tar.TypeReg,
			ModTime:  time.Unix(0, 0),
			Format:   tar.FormatUSTAR,
		}
		if f.name[len(f.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.name, err)
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
