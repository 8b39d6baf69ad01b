package image

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/musterhq/muster/internal/agentapi"
)

const (
	maxLayers = 125 // what Docker stacks: overlay2 takes 127, and a container adds two
	maxConfig = 8 << 20
)

// found is an image as its registry describes it, verified but not downloaded.
type found struct {
	registry string // host:port
	name     string // complete name
	pin      string // digest that the name refers to
	image    v1.Image
	digest   v1.Hash // digest of the manifest for this host's platform
	served   v1.Hash // digest of the manifest that the daemon gets: equal to digest unless it was changed
	manifest []byte
	media    types.MediaType
	config   []byte
	configID v1.Hash
	layers   []v1.Descriptor
	total    int64 // compressed bytes
}

// lookLimit is how long a registry may take to describe an image.
const lookLimit = time.Minute

// lookWithin calls look, and treats a registry that has not answered after limit as unreachable. The layers of the
// result are fetched with the same ctx, so ctx ends with the caller's context and not with the limit.
func (p *Puller) lookWithin(ctx context.Context, limit time.Duration, r Request) (*found, error) {
	looking, giveUp := context.WithCancel(ctx)
	timer := time.AfterFunc(limit, giveUp)
	f, err := p.look(looking, r)
	if timer.Stop() {
		return f, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	registry := r.Image
	if ref, err := p.reference(r); err == nil {
		registry = ref.Context().RegistryStr()
	}
	return nil, &Away{registry, "does not answer in time", context.DeadlineExceeded}
}

// look requests an image's description from its registry and refuses images that this host would not run. Every lease
// uses its own credentials, so knowing a digest gives no access to another renter's image, whether or not the image is
// already on this host.
func (p *Puller) look(ctx context.Context, r Request) (*found, error) {
	ref, err := p.reference(r)
	if err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if r.Auth != nil {
		auth = &authn.Basic{Username: r.Auth.Username, Password: r.Auth.Password}
	}
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	desc, err := remote.Get(ref, remote.WithContext(ctx), remote.WithTransport(p.guard), remote.WithAuth(auth),
		remote.WithPlatform(platform), remote.WithUserAgent("muster-agent"))
	if err != nil {
		return nil, &fromRegistry{ref.Context().RegistryStr(), err}
	}
	if !desc.MediaType.IsImage() && !desc.MediaType.IsIndex() {
		return nil, refused("it is not an image but %s", desc.MediaType)
	}
	img, err := desc.Image()
	if err != nil {
		return nil, err
	}
	f, err := p.check(img, r.MaxBytes)
	if err != nil {
		return nil, &fromRegistry{ref.Context().RegistryStr(), err}
	}
	f.registry, f.name, f.pin = ref.Context().RegistryStr(), ref.Name(), desc.Digest.String()
	return f, nil
}

// public returns the image's name if anybody may pull it, else "".
func (f *found) public(r Request) string {
	if r.Auth != nil || r.Digest != "" {
		return ""
	}
	return f.name
}

// reference returns what to request: the renter's reference, pinned to a digest if one is known.
func (p *Puller) reference(r Request) (name.Reference, error) {
	var opts []name.Option
	if host, _, _ := strings.Cut(r.Image, "/"); p.guard.allow[host] {
		opts = append(opts, name.Insecure)
	}
	ref, err := name.ParseReference(r.Image, opts...)
	if err != nil {
		return nil, refused("%q is not the name of an image", r.Image)
	}
	if r.Digest == "" {
		return ref, nil
	}
	pinned, err := name.NewDigest(ref.Context().Name()+"@"+r.Digest, opts...)
	if err != nil {
		return nil, refused("%q is not a digest", r.Digest)
	}
	return pinned, nil
}

func (p *Puller) check(img v1.Image, maxBytes int64) (*found, error) {
	m, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	if m.Config.Size > maxConfig {
		return nil, refused("its configuration has %d bytes", m.Config.Size)
	}
	if len(m.Layers) > maxLayers {
		return nil, refused("it has %d layers; %d can be stacked", len(m.Layers), maxLayers)
	}
	f := &found{image: img, layers: m.Layers, configID: m.Config.Digest}
	for _, l := range m.Layers {
		if !l.MediaType.IsLayer() || !l.MediaType.IsDistributable() || len(l.URLs) > 0 {
			return nil, refused("a layer is of a kind that is not pulled: %s", l.MediaType)
		}
		if l.Size < 0 {
			return nil, refused("a layer has %d bytes", l.Size)
		}
		f.total += l.Size
	}
	if f.total > maxBytes {
		return nil, tooBig("it has %s compressed; the node's disk has %s", gb(f.total), gb(maxBytes))
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	if config.Architecture != runtime.GOARCH || (config.OS != "" && config.OS != "linux") {
		return nil, wrongArch("it is made for %s/%s, this host is linux/%s", config.OS, config.Architecture, runtime.GOARCH)
	}
	if p.cfg.Driver != nil {
		if err := p.cfg.Driver().runs(config.Config); err != nil {
			return nil, err
		}
	}
	if f.config, err = img.RawConfigFile(); err != nil {
		return nil, err
	}
	if f.manifest, err = img.RawManifest(); err != nil {
		return nil, err
	}
	if f.media, err = img.MediaType(); err != nil {
		return nil, err
	}
	if f.digest, err = img.Digest(); err != nil {
		return nil, err
	}
	f.served = f.digest
	if len(config.Config.Volumes) > 0 {
		return f, f.withoutVolumes()
	}
	return f, nil
}

// layerName returns a layer's digest in the form shown to people.
func layerName(h v1.Hash) string { return h.Hex[:min(12, len(h.Hex))] }

// progress returns the list of layers before any download.
func (f *found) progress() []agentapi.Layer {
	out := make([]agentapi.Layer, len(f.layers))
	for i, l := range f.layers {
		out[i] = agentapi.Layer{Digest: layerName(l.Digest), Total: l.Size}
	}
	return out
}
