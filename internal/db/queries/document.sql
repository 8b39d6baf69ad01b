-- name: InsertDocument :execrows
-- The first one stands. Its number is set at the commit.
INSERT INTO document (key, series, org_id, corrects, content, zone)
VALUES (@key, @series, @org_id, @corrects, @content, coalesce((SELECT o.zone FROM org o WHERE o.id = @org_id), 'UTC'))
ON CONFLICT DO NOTHING;

-- name: DocumentByKey :one
SELECT key, series, org_id, corrects, coalesce(year, 0)::integer AS year, coalesce(number, 0)::bigint AS number,
       coalesce(issued_at, to_timestamp(0))::timestamptz AS issued_at, content
FROM document WHERE key = $1;

-- name: DocumentByNumber :one
-- With the number of the document that it corrects; 0: that has none of the register.
SELECT d.key, d.series, d.org_id, d.corrects, coalesce(d.year, 0)::integer AS year, coalesce(d.number, 0)::bigint AS number,
       coalesce(d.issued_at, to_timestamp(0))::timestamptz AS issued_at, d.content,
       coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year, coalesce(c.number, 0)::bigint AS corrects_number
FROM document d LEFT JOIN document c ON c.key = d.corrects
WHERE d.series = @series AND d.year = @year::integer AND d.number = @number::bigint AND d.org_id = @org_id;

-- name: DocumentsOfOrg :many
-- An org's documents of a series and year, newest first.
SELECT d.key, d.series, d.org_id, d.corrects, coalesce(d.year, 0)::integer AS year, coalesce(d.number, 0)::bigint AS number,
       coalesce(d.issued_at, to_timestamp(0))::timestamptz AS issued_at, d.content,
       coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year, coalesce(c.number, 0)::bigint AS corrects_number
FROM document d LEFT JOIN document c ON c.key = d.corrects
WHERE d.org_id = @org_id AND d.series = @series AND d.year = @year::integer AND d.number < @before::bigint
ORDER BY d.number DESC LIMIT @max_rows;

-- name: DocumentSeries :many
-- Each series and year: how many numbers were given, and how many documents have them. A row of either side alone
-- is a fault, too.
SELECT coalesce(n.series, d.series)::text AS series, coalesce(n.year, d.year)::integer AS year,
       coalesce(n.next - 1, 0)::bigint AS given, coalesce(d.documents, 0)::bigint AS documents,
       coalesce(d.first, 0)::bigint AS first, coalesce(d.last, 0)::bigint AS last, coalesce(d.disorder, 0)::bigint AS disorder
FROM document_number n
FULL JOIN (SELECT x.series, x.year, count(*) AS documents, min(x.number) AS first, max(x.number) AS last,
                  count(*) FILTER (WHERE x.issued_at < x.previous) AS disorder
           FROM (SELECT o.series, o.year, o.number, o.issued_at,
                        lag(o.issued_at) OVER (PARTITION BY o.series, o.year ORDER BY o.number) AS previous
                 FROM document o WHERE o.number IS NOT NULL) x
           GROUP BY x.series, x.year) d ON d.series = n.series AND d.year = n.year
ORDER BY 1, 2;

-- name: DocumentsIssued :many
-- scan: page
-- Documents of one org or of all, of one series or of all, of one year or of all: those issued before a moment, newest
-- first. Documents of one moment are in the order of their keys.
SELECT d.key, d.series, d.org_id, o.name AS org_name, d.year::integer AS year, d.number::bigint AS number, d.issued_at::timestamptz AS issued_at,
       d.zone, d.content, coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year,
       coalesce(c.number, 0)::bigint AS corrects_number
FROM document d JOIN org o ON o.id = d.org_id LEFT JOIN document c ON c.key = d.corrects
WHERE d.number IS NOT NULL AND (sqlc.narg(org_id)::uuid IS NULL OR d.org_id = sqlc.narg(org_id)::uuid)
  AND (@series::text = '' OR d.series = @series) AND (@year::integer = 0 OR d.year = @year)
  AND (d.issued_at, d.key) < (@before_at::timestamptz, @before_key::text)
ORDER BY d.issued_at DESC, d.key DESC LIMIT @max_rows;

-- name: DocumentNumbered :one
-- A document of any org by its number.
SELECT d.key, d.series, d.org_id, o.name AS org_name, d.year::integer AS year, d.number::bigint AS number, d.issued_at::timestamptz AS issued_at,
       d.zone, d.content, coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year,
       coalesce(c.number, 0)::bigint AS corrects_number
FROM document d JOIN org o ON o.id = d.org_id LEFT JOIN document c ON c.key = d.corrects
WHERE d.series = @series AND d.year = @year::integer AND d.number = @number::bigint;

-- name: DocumentCorrections :many
-- The documents of an org that correct or cancel a document, in the order of issue.
SELECT series, year::integer AS year, number::bigint AS number FROM document
WHERE org_id = @org_id AND corrects = @key::text AND number IS NOT NULL ORDER BY issued_at, key;
