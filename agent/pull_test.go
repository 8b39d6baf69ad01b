package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/testnet"
)

const (
	registryUser     = "robot"
	registryPassword = "s3cret-of-the-registry"
)

// privateRegistry is one that wants a token, and gives one for a password, as the great registries do.
func privateRegistry(t *testing.T) string {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/token" && user == registryUser && password == registryPassword:
			json.NewEncoder(w).Encode(map[string]string{"token": "t0ken"})
		case r.URL.Path == "/token":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("Authorization") == "Bearer t0ken":
			inner.ServeHTTP(w, r)
		default:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// claimBig makes an image of another one that says its layer has three gigabytes.
func claimBig(t *testing.T, of, registry string) string {
	t.Helper()
	from, err := name.ParseReference(of)
	if err != nil {
		t.Fatal(err)
	}
	desc, err := remote.Get(from)
	if err != nil {
		t.Fatal(err)
	}
	m, err := v1.ParseManifest(bytes.NewReader(desc.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	m.Layers[0].Size = 3e9
	body, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+registry+"/v2/test/big/manifests/1",
		bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", string(desc.MediaType))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status)
	}
	return registry + "/test/big:1"
}

// On a real engine every failure of a pull has its reason and a sentence for the renter, and credentials open what
// they are for and are written nowhere.
func TestReasonsOfPullsThatFail(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	private := privateRegistry(t)
	away := testnet.Address(t)
	h.stop()
	h.allow = []string{private, away}
	h.start()

	own := strings.Split(h.image, "/")[0]
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	pushJobAs(t, own+"/test/arch:1", func(c *v1.ConfigFile) { c.Architecture = other })
	pushJobAs(t, own+"/test/cuda:1", func(c *v1.ConfigFile) { c.Config.Env = []string{"NVIDIA_REQUIRE_CUDA=cuda>=13.0"} })
	pushJobAs(t, private+"/team/job:1", nil, remote.WithAuth(&authn.Basic{
		Username: registryUser,
		Password: registryPassword,
	}))

	type expected struct{ reason, says string }
	want := map[agentapi.LeaseRef]expected{}
	var specs []agentapi.LeaseSpec
	add := func(reason, says, image string, change func(*agentapi.LeaseSpec)) agentapi.LeaseRef {
		s := h.spec()
		s.Image = image
		if change != nil {
			change(&s)
		}
		specs = append(specs, s)
		if reason != "" {
			want[s.LeaseRef] = expected{reason, says}
		}
		return s.LeaseRef
	}
	add(agentapi.ReasonImageNotFound, "no such image", own+"/test/none:1", nil)
	add(agentapi.ReasonImageNotFound, "no such image", own+"/test/job:none", nil)
	add(agentapi.ReasonImageUnauthorized, "private", private+"/team/job:1", nil)
	add(agentapi.ReasonImageUnauthorized, "private", private+"/team/job:1", func(s *agentapi.LeaseSpec) {
		s.RegistryAuth = &agentapi.RegistryAuth{Username: registryUser, Password: "s3cret-but-wrong"}
	})
	add(agentapi.ReasonImageWrongArch, "linux/"+other, own+"/test/arch:1", nil)
	add(agentapi.ReasonImageNewerCUDA, "supports CUDA up to 12.4", own+"/test/cuda:1", nil)
	add(agentapi.ReasonImageTooBig, "3.00 GB compressed; the node's disk has 1.00 GB", claimBig(t, h.image, own), nil)
	good := add("", "", private+"/team/job:1", func(s *agentapi.LeaseSpec) {
		s.RegistryAuth = &agentapi.RegistryAuth{Username: registryUser, Password: registryPassword}
	})
	waits := add("", "", away+"/test/job:1", nil)
	h.want(specs...)
	for ref, w := range want {
		st := h.await(ref, "gone: "+w.reason, gone)
		if st.State != agentapi.NodeFailed || st.Reason != w.reason || !strings.Contains(st.Detail, w.says) || st.Started {
			t.Errorf("want %s: %s", w.reason, replies(st))
		}
	}
	h.await(good, "ready with credentials", ready)
	h.await(waits, "reported to wait for the registry", func(st agentapi.LeaseStatus) bool {
		// On a machine that is slow enough it has been given up by now.
		return strings.Contains(st.Progress.WaitingFor, "the registry "+away+" cannot be connected to") ||
			st.Reason == agentapi.ReasonRegistryAway && st.Detail == "the registry "+away+" cannot be connected to"
	})
	h.noSecrets()
}
