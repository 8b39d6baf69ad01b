package api

import (
	"net/http/httptest"
	"testing"
)

func TestDocumentsAreRenderedOnce(t *testing.T) {
	t.Parallel()
	a := bare(t)
	for path, get := range map[string]func() ([]byte, error){
		"/api/docs":            a.rendered.docs,
		Base + "/openapi.json": a.rendered.openAPI,
	} {
		first, err := get()
		if err != nil || len(first) == 0 {
			t.Fatal(path, err)
		}
		second, _ := get()
		if &first[0] != &second[0] {
			t.Errorf("%s is rendered again", path)
		}
	}
	// What is served is what was rendered, not another rendering.
	a.rendered.docs = func() ([]byte, error) { return []byte("the page"), nil }
	a.rendered.openAPI = func() ([]byte, error) { return []byte("the document"), nil }
	for path, want := range map[string]string{"/api/docs": "the page", Base + "/openapi.json": "the document"} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Body.String() != want {
			t.Errorf("%s: %d bytes of another rendering", path, w.Body.Len())
		}
	}
}
