package container

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"runtime"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/musterhq/muster/internal/fault"
)

// baseImage is the guest's image, which contains nothing but the mount points. All agents of a machine make the same
// one.
const baseImage = "muster/guest-base:1"

// ensureBaseImage loads the guest's image if it is missing. It needs no registry.
func (e *Engine) ensureBaseImage(ctx context.Context) (string, error) {
	if _, err := e.docker.ImageInspect(ctx, baseImage); err == nil {
		return baseImage, nil
	} else if !cerrdefs.IsNotFound(err) {
		return "", unavailable(err, "look for the guest's image")
	}
	archive, err := baseArchive()
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "make the guest's image")
	}
	res, err := e.docker.ImageLoad(ctx, archive)
	if err != nil {
		return "", unavailable(err, "load the guest's image")
	}
	_, err = io.Copy(io.Discard, res)
	if cerr := res.Close(); err == nil {
		err = cerr
	}
	return baseImage, unavailable(err, "load the guest's image")
}

func baseArchive() (io.Reader, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"dev/", "etc/", "proc/", "run/", "sys/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())),
			nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	img, err = mutate.ConfigFile(img, withPlatform(img))
	if err != nil {
		return nil, err
	}
	ref, err := name.NewTag(baseImage)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = tarball.Write(ref, img, &out)
	return &out, err
}

func withPlatform(img v1.Image) *v1.ConfigFile {
	cf, err := img.ConfigFile()
	if err != nil {
		return &v1.ConfigFile{}
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", runtime.GOARCH
	return cf
}
