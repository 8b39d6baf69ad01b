// Package docs embeds the documentation. The server shows it at /docs, and package web/docs lists its pages.
package docs

import "embed"

// FS holds the Markdown pages and the files that they link to.
//
//go:embed *.md adr api evidence hardware launch tutorials
var FS embed.FS
