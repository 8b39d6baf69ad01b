package image

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/musterhq/muster/internal/agentapi"
)

type answers func(*http.Request) *http.Response

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// A public registry that redirects to a private address is refused for good, also where the client library refuses
// before our dialer is called.
func TestTheLibrarysOwnRefusalOfARedirectIsFinal(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"http://127.0.0.1/v2/", "http://169.254.169.254/latest/", "http://10.0.0.1/blob",
		"http://[::1]/blob"} {
		asked := map[string]bool{}
		registry := answers(func(r *http.Request) *http.Response {
			asked[r.URL.Host] = true
			resp := &http.Response{Request: r, StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
			if r.URL.Path != "/v2/" {
				resp.StatusCode = http.StatusFound
				resp.Header.Set("Location", to)
			}
			return resp
		})
		ref, err := name.ParseReference("registry.example.com/demo:1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = remote.Get(ref, remote.WithTransport(registry))
		var refused *Error
		if !errors.As(classify(err), &refused) || refused.Reason != agentapi.ReasonImageRefused {
			t.Errorf("%s: %v", to, err)
		}
		if len(asked) != 1 {
			t.Errorf("%s: asked %v", to, asked)
		}
	}
}
