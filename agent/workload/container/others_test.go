package container

import (
	"context"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// Everything else on a daemon is left alone: another agent's node of the very same lease, and containers without
// labels, even with names like ours.
func TestOthersContainersAreLeftAlone(t *testing.T) {
	t.Parallel()
	ours, spec, files := setUp(t)
	theirs, _, _ := setUp(t)
	ctx := t.Context()
	image, err := ours.ensureBaseImage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ours.docker.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   ours.name(spec.LeaseRef, Guest) + "-copy",
		Config: &container.Config{Image: image, Cmd: []string{"/none"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := ours.docker.ContainerRemove(context.Background(), stranger.ID,
			client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
		if err := theirs.Remove(context.Background(), spec.LeaseRef, Guest); err != nil {
			t.Error(err)
		}
		if err := theirs.RemoveNetwork(context.Background()); err != nil {
			t.Error(err)
		}
	})
	mine, err := ours.EnsureGuest(ctx, spec, files)
	if err != nil {
		t.Fatal(err)
	}
	other, err := theirs.EnsureGuest(ctx, spec, files)
	if err != nil || other.ID == mine.ID {
		t.Fatalf("%+v, %v", other, err)
	}
	list, err := ours.List(ctx)
	if err != nil || len(list) != 1 || list[0].ID != mine.ID {
		t.Fatalf("%+v, %v", list, err)
	}
	// What purge and the end of a lease do: all that is listed, and the network.
	for _, c := range list {
		if err := ours.Remove(ctx, c.Ref, c.Role); err != nil {
			t.Fatal(err)
		}
	}
	if err := ours.RemoveNetwork(ctx); err != nil {
		t.Fatal(err)
	}
	if c, err := theirs.Inspect(ctx, spec.LeaseRef, Guest); err != nil || c.ID != other.ID || c.State != Running {
		t.Errorf("another agent's node: %+v, %v", c, err)
	}
	if _, err := ours.docker.ContainerInspect(ctx, stranger.ID, client.ContainerInspectOptions{}); err != nil {
		t.Errorf("a stranger's container: %v", err)
	}
}
