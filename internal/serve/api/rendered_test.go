package api

import (
	"bytes"
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
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if !bytes.Equal(w.Body.Bytes(), first) {
			t.Errorf("%s: %d bytes", path, w.Body.Len())
		}
	}
}
