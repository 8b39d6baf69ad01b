package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// newBucket is the body of a request that adds a bucket of a real store.
func (w *world) newBucket(name string) string {
	w.t.Helper()
	if w.store == nil {
		w.store = s3test.Start(w.t)
	}
	s := w.store.Config
	b, err := json.Marshal(client.NewBucket{Name: name, Endpoint: s.Endpoint, Bucket: s.Bucket, AccessKeyID: s.Access,
		SecretAccessKey: s.Secret})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// onStore is the body of an example, for the real store of the test.
func (w *world) onStore(example string) string {
	w.t.Helper()
	w.newBucket("") // starts the store
	s := w.store.Config
	return strings.NewReplacer("https://s3.eu-central-1.amazonaws.com", s.Endpoint, "eu-central-1", "us-east-1",
		"acme-results", s.Bucket, "AKIAIOSFODNN7EXAMPLE", s.Access, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		s.Secret).Replace(example)
}

func TestBucketsOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada, eve := w.user("ada"), w.user("eve")
	body := w.newBucket("results")
	wrong := strings.Replace(body, w.store.Config.Secret, "another", 1)
	refused := w.want(w.call(ada, "POST", api.Base+"/buckets", wrong), 422, "validation_failed")
	if !strings.Contains(refused.raw, `"secret_access_key"`) || strings.Contains(refused.raw, "another") {
		t.Errorf("%s", refused.raw)
	}
	named := strings.Replace(body, `"results"`, `"Bad Name"`, 1)
	refused = w.want(w.call(ada, "POST", api.Base+"/buckets", named), 422, "validation_failed")
	if !strings.Contains(refused.raw, "lower-case letters") || strings.Contains(refused.raw, "a-z0-9") {
		t.Errorf("a name is refused with %s", refused.raw)
	}
	made := w.want(w.call(ada, "POST", api.Base+"/buckets", body), 201, "")
	at := api.Base + "/buckets/" + made.text("id")
	w.want(w.call(ada, "POST", api.Base+"/buckets", body), 409, "conflict")
	for _, r := range []reply{made, w.call(ada, "GET", at, nil), w.call(ada, "GET", api.Base+"/buckets", nil),
		w.call(ada, "POST", at+"/check", nil)} {
		if !strings.Contains(r.raw, `"access_key_id":"access"`) || strings.Contains(r.raw, w.store.Config.Secret) {
			t.Errorf("%d %s", r.StatusCode, r.raw)
		}
	}
	key := map[string]any{"access_key_id": w.store.Config.Access, "secret_access_key": "another"}
	w.want(w.call(ada, "PATCH", at, key), 422, "validation_failed")
	key["secret_access_key"] = w.store.Config.Secret
	w.want(w.call(ada, "PATCH", at, key), 200, "")
	w.want(w.call(eve, "GET", at, nil), 404, "not_found")
	w.want(w.call(eve, "PATCH", at, key), 404, "not_found")
	w.want(w.call(eve, "POST", at+"/check", nil), 404, "not_found")
	w.want(w.call(eve, "DELETE", at, nil), 404, "not_found")
	w.want(w.call(ada, "DELETE", at, nil), 204, "")
	w.want(w.call(ada, "GET", at, nil), 404, "not_found")
	if strings.Contains(w.log.String(), w.store.Config.Secret) {
		t.Error("the secret is in the log")
	}
}

// A bucket that the organisation does not have is refused like one that does not exist.
func TestSpec_UnknownBucketIsRefused(t *testing.T) {
	t.Parallel()
	w := open(t)
	r := w.want(w.call(w.user("ada"), "POST", api.Base+"/quotes", map[string]any{
		"nodes": 1, "gpus_per_node": 1, "image": "registry.test/job:1",
		"mounts": []any{map[string]any{"path": "/data", "bucket": id.New[id.Bucket]().String()}},
	}), 422, "validation_failed")
	if !strings.Contains(r.raw, "mounts[0].bucket") || !strings.Contains(r.raw, "not found") {
		t.Errorf("%s", r.raw)
	}
}
