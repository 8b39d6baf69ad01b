package dbq

// Conn is what the queries run on. (This file is written by hand.)
func (q *Queries) Conn() DBTX { return q.db }
