package container

import (
	"context"
	"errors"
	"fmt"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// PullImage makes the daemon pull ref, calling says with each layer's short digest and the daemon's present action on
// it. The error contains the daemon's message unchanged: the caller classifies it.
func (e *Engine) PullImage(ctx context.Context, ref string, says func(layer, status string)) error {
	res, err := e.docker.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err != nil {
		return unavailable(err, "pull the image")
	}
	defer res.Close()
	for m, err := range res.JSONMessages(ctx) {
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

// FindImage returns the id and size of a tag's image, or "" if there is none.
func (e *Engine) FindImage(ctx context.Context, tag string) (id string, size int64, err error) {
	res, err := e.docker.ImageInspect(ctx, tag)
	if cerrdefs.IsNotFound(err) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, unavailable(err, "look for the image")
	}
	return res.ID, res.Size, nil
}

// ListImages returns the tags of a repository that the daemon has, with their images' unpacked sizes in bytes.
func (e *Engine) ListImages(ctx context.Context, repository string) (map[string]int64, error) {
	res, err := e.docker.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("reference", repository)})
	if err != nil {
		return nil, unavailable(err, "list images")
	}
	out := map[string]int64{}
	for _, img := range res.Items {
		for _, tag := range img.RepoTags {
			if strings.HasPrefix(tag, repository+":") {
				out[tag] = img.Size
			}
		}
	}
	return out, nil
}

// RemoveImage removes a tag and the layers that only it used. It is no error if there is no such tag.
func (e *Engine) RemoveImage(ctx context.Context, tag string) error {
	_, err := e.docker.ImageRemove(ctx, tag, client.ImageRemoveOptions{PruneChildren: true})
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return unavailable(err, "remove the image")
}
