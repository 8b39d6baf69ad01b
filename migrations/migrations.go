// Package migrations embeds the forward-only schema migrations. Each is small and safe while the previous version of
// the server still runs.
package migrations

import "embed"

// FS holds the goose migrations, NNNNN_name.sql.
//
//go:embed *.sql
var FS embed.FS
