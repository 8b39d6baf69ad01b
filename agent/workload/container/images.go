package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// PullImage makes the daemon pull ref, calling says with each layer's short digest and the daemon's present action on
// it. The error contains the daemon's message unchanged: the caller classifies it. When ctx is done, the registry must
// refuse ref from then on.
func (e *Engine) PullImage(ctx context.Context, ref string, says func(layer, status string)) error {
	pulling, ended := e.cancelLate(ctx)
	defer ended()
	res, err := e.docker.ImagePull(pulling, ref, client.ImagePullOptions{})
	if err != nil {
		return unavailable(err, "pull the image")
	}
	defer res.Close()
	for m, err := range res.JSONMessages(pulling) {
		if err != nil {
			return unavailable(err, "pull the image")
		}
		if m.Error != nil {
			return unavailable(errors.New(m.Error.Message), "pull the image")
		}
		if m.ID != "" {
			says(m.ID, m.Status)
		}
	}
	return ctx.Err()
}

// pullFails is how long a pull may take to fail after its registry began to refuse it.
const pullFails = 20 * time.Second

// cancelLate returns a context for a pull, which ends with ctx, or later if the daemon uses containerd's store: what it
// has downloaded of a pull that is cancelled it keeps for eight hours, but it removes it at once if the pull fails.
// ended must be called when the pull has returned.
func (e *Engine) cancelLate(ctx context.Context) (pulling context.Context, ended func()) {
	pulling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		defer cancel()
		res, err := e.docker.Info(pulling, client.InfoOptions{})
		if err != nil || !ofContainerd(res.Info) {
			return
		}
		fails := time.NewTimer(pullFails)
		defer fails.Stop()
		select {
		case <-fails.C:
		case <-pulling.Done():
		}
	})
	return pulling, func() { stop(); cancel() }
}

// KeepImage tags ref as tag, removes the tag ref, and returns the image's id and unpacked size in bytes.
func (e *Engine) KeepImage(ctx context.Context, ref, tag string) (id string, size int64, err error) {
	if _, err := e.docker.ImageTag(ctx, client.ImageTagOptions{Source: ref, Target: tag}); err != nil {
		return "", 0, unavailable(err, "tag the image")
	}
	if _, err := e.docker.ImageRemove(ctx, ref, client.ImageRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) {
		return "", 0, unavailable(err, "untag the image")
	}
	id, size, err = e.FindImage(ctx, tag)
	if err == nil && id == "" {
		err = unavailable(fmt.Errorf("%s is gone", tag), "find the image")
	}
	return id, size, err
}

// FindImage returns the id and unpacked size of a tag's image, or "" if there is none.
func (e *Engine) FindImage(ctx context.Context, tag string) (id string, size int64, err error) {
	res, err := e.docker.ImageInspect(ctx, tag)
	if cerrdefs.IsNotFound(err) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, unavailable(err, "look for the image")
	}
	if res.Descriptor != nil {
		size, err = e.unpacked(ctx, tag)
	} else {
		size, err = e.unpackedByList(ctx, tag, res.Size)
	}
	return res.ID, size, err
}

// unpacked returns the unpacked size of an image in containerd's store. The size that Docker gives for the whole image
// is another one: until Docker 28 that of the packed layers, since Docker 29 the sum of both.
func (e *Engine) unpacked(ctx context.Context, tag string) (size int64, err error) {
	res, err := e.docker.ImageInspect(ctx, tag, client.ImageInspectWithManifests(true))
	if err != nil {
		return 0, unavailable(err, "look for the image")
	}
	for _, m := range res.Manifests {
		if m.ImageData != nil {
			size += m.ImageData.Size.Unpacked
		}
	}
	return size, nil
}

// unpackedByList is unpacked for Docker up to 27, which does not say which store it has. There an image's own size is
// that of its packed layers with containerd's store, and the unpacked size with Docker's. The list of images shows the
// sum in the first case and the same in the second.
func (e *Engine) unpackedByList(ctx context.Context, tag string, size int64) (int64, error) {
	res, err := e.docker.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("reference", tag)})
	if err != nil {
		return 0, unavailable(err, "list images")
	}
	for _, img := range res.Items {
		if img.Size > size {
			return img.Size - size, nil
		}
	}
	return size, nil
}

// ListImages returns the tags of a repository that the daemon has.
func (e *Engine) ListImages(ctx context.Context, repository string) ([]string, error) {
	res, err := e.docker.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("reference", repository)})
	if err != nil {
		return nil, unavailable(err, "list images")
	}
	var out []string
	for _, img := range res.Items {
		for _, tag := range img.RepoTags {
			if strings.HasPrefix(tag, repository+":") {
				out = append(out, tag)
			}
		}
	}
	return out, nil
}

// RemoveImage removes a tag and the layers that only it used. It is no error if there is no such tag.
func (e *Engine) RemoveImage(ctx context.Context, tag string) error {
	var err error
	for range 2 {
		if _, err = e.docker.ImageRemove(ctx, tag, client.ImageRemoveOptions{PruneChildren: true}); err == nil ||
			cerrdefs.IsNotFound(err) {
			return nil
		}
		// If the last tags of one image are removed at the same time, Docker answers one of the requests with an internal
		// error ("unrecognized image ID"). The second try finds the tag gone.
	}
	return unavailable(err, "remove the image")
}
