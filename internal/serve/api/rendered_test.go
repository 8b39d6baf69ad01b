package api

import (
	"net/http/httptest"
	"testing"
)

func TestDocument_IsRenderedOnce(t *testing.T) {
	t.Parallel()
	a := bare(t)
	first, err := a.OpenAPI()
	if err != nil || len(first) == 0 {
		t.Fatal(err)
	}
	if second, _ := a.OpenAPI(); &first[0] != &second[0] {
		t.Error("the document is rendered again")
	}
	// What is served is what was rendered, not another rendering.
	a.rendered.openAPI = func() ([]byte, error) { return []byte("the document"), nil }
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", Base+"/openapi.json", nil))
	if w.Body.String() != "the document" {
		t.Errorf("%d bytes of another rendering", w.Body.Len())
	}
}
