package api

import "github.com/danielgtaylor/huma/v2"

// noun begins a group of operations: a tag of the document and a page of the reference. paths are the first parts of
// the paths that belong to it.
func (t *table) noun(name, about string, paths ...string) {
	doc := t.huma.OpenAPI()
	doc.Tags = append(doc.Tags, &huma.Tag{Name: name, Description: about})
	for _, p := range paths {
		t.nouns[p] = name
	}
}
