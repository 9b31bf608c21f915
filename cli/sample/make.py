#!/usr/bin/env python3
"""Makes the bundled sample corpus, web.jsonl.gz, from the HTML documentation in Debian packages.

    python3 make.py [--out DIR] [--cache DIR] [--bytes 3200000]

Needs only Python 3.11, apt-get and dpkg-deb; nothing is installed. Each package becomes a host, <package>.debian.example;
pages keep the licence of their package (see NOTICE). Pages are chosen evenly over a package, middle-sized ones first, so that
the result depends on nothing but the package's content. One JSON object a line: url, title, body, lang, anchors,
published, static_rank, topic, attributes.
"""
import argparse, gzip, io, json, math, os, re, subprocess, tarfile
from datetime import datetime, timezone
from html.parser import HTMLParser
from urllib.parse import urljoin, urldefrag

# package, topic, licence, share of the corpus, (path pattern, language) pairs; first match wins
PACKAGES = [
    ("rust-doc", "programming", "MIT or Apache-2.0", 18, [(r"/html/(book|reference|std|rust-by-example|nomicon|cargo)/.*\.html$", "en")]),
    ("postgresql-doc-15", "databases", "PostgreSQL", 16, [(r"\.html$", "en")]),
    ("python3.11-doc", "programming", "PSF-2.0", 14, [(r"/html/(library|tutorial|howto|faq)/.*\.html$", "en")]),
    ("nodejs-doc", "programming", "MIT", 5, [(r"/api/.*\.html$", "en")]),
    ("twisted-doc", "networking", "MIT", 5, [(r"\.html$", "en")]),
    ("debian-handbook", "systems", "GPL-2+ or CC-BY-SA-3.0", 18, [
        (r"/html/fr-FR/.*\.html$", "fr"), (r"/html/es-ES/.*\.html$", "es"), (r"/html/de-DE/.*\.html$", "de"),
        (r"/html/ja-JP/.*\.html$", "ja"), (r"/html/pt-BR/.*\.html$", "pt"), (r"/html/en-US/.*\.html$", "en")]),
    ("libreoffice-help-de", "office", "MPL-2.0", 4, [(r"\.html$", "de")]),
    ("libreoffice-help-fr", "office", "MPL-2.0", 4, [(r"\.html$", "fr")]),
    ("libreoffice-help-ru", "office", "MPL-2.0", 4, [(r"\.html$", "ru")]),
    ("libreoffice-help-ja", "office", "MPL-2.0", 4, [(r"\.html$", "ja")]),
    ("libreoffice-help-zh-cn", "office", "MPL-2.0", 4, [(r"\.html$", "zh")]),
    ("libreoffice-help-ko", "office", "MPL-2.0", 4, [(r"\.html$", "ko")]),
]
BLOCK = set("p div br hr li ul ol dl dt dd table tr td th h1 h2 h3 h4 h5 h6 pre blockquote section article main header".split())
DROP = set("script style noscript template svg nav footer aside select button".split())
SPACE, LINES = re.compile(r"[^\S\n]+"), re.compile(r"\s*\n\s*")


class Page(HTMLParser):
    """Title, visible text and links of one page."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.title, self.text, self.links, self.drop, self.place, self.link = "", io.StringIO(), [], 0, "", None

    def handle_starttag(self, tag, attrs):
        if tag in DROP:
            self.drop += 1
        elif tag in BLOCK:
            self.text.write("\n")
        if tag in ("title", "head"):
            self.place = tag
        if tag == "body":
            self.place = ""
        if tag == "a":
            self.link = [dict(attrs).get("href") or "", ""]

    def handle_endtag(self, tag):
        if tag in DROP:
            self.drop = max(0, self.drop - 1)
        elif tag in BLOCK:
            self.text.write("\n")
        if tag == "title":
            self.place = "head"
        if tag == "head":
            self.place = ""
        if tag == "a" and self.link:
            self.links.append(tuple(self.link))
            self.link = None

    def handle_data(self, data):
        if self.place == "title":
            self.title += data
        elif not self.drop and self.place != "head":
            self.text.write(data)
            if self.link:
                self.link[1] += data

    def body(self):
        return LINES.sub("\n", SPACE.sub(" ", self.text.getvalue())).strip()


def decode(raw):
    named = re.search(rb"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", raw[:2048], re.I)
    for name in ([named.group(1).decode("ascii")] if named else []) + ["utf-8", "latin-1"]:
        try:
            return raw.decode(name)
        except (LookupError, UnicodeDecodeError):
            continue


def package_files(package, cache):
    """(path, date, bytes) of the HTML files of a package, by path."""
    os.makedirs(cache, exist_ok=True)
    find = lambda: sorted(name for name in os.listdir(cache) if name.startswith(package + "_"))
    if not find():
        subprocess.run(["apt-get", "download", "-q", package], cwd=cache, check=True, stdout=subprocess.DEVNULL)
    tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", os.path.join(cache, find()[-1])], stdout=subprocess.PIPE)
    files = []
    with tarfile.open(fileobj=tar.stdout, mode="r|") as archive:
        for entry in archive:
            if entry.isfile() and entry.name.endswith(".html") and entry.size < 400_000:
                files.append((entry.name.lstrip("."), int(entry.mtime), archive.extractfile(entry).read()))
    tar.wait()
    return sorted(files)


def pages_of(package, topic, licence, patterns, cache):
    pages = []
    for path, mtime, raw in package_files(package, cache):
        lang = next((lang for pattern, lang in patterns if re.search(pattern, path)), None)
        if not lang:
            continue
        page = Page()
        page.feed(decode(raw))
        body, title = page.body(), " ".join(page.title.split())
        if not title or not 500 <= len(body) <= 12_000:
            continue
        short = re.sub(r"^/usr/share/(doc/)?", "", path)
        url = f"https://{package}.debian.example/{short}"
        links = [(urldefrag(urljoin(url, href))[0], " ".join(text.split())[:80]) for href, text in page.links if href and not href.startswith("#")]
        pages.append({"url": url, "title": title[:200], "body": body, "lang": lang, "topic": [topic], "links": links,
                      "published": datetime.fromtimestamp(mtime, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                      "attributes": {"package": package, "licence": licence, "words": len(body.split())}})
    return pages


def choose(pages, budget):
    """Evenly over the package's languages and paths, until the budget of bytes is used."""
    by_language = {}
    for page in pages:
        by_language.setdefault(page["lang"], []).append(page)
    chosen = []
    for lang in sorted(by_language):
        group, left = by_language[lang], budget // len(by_language)
        step = max(1, len(group) * 3500 // max(left, 1))
        for start in range(step):
            for page in group[start::step]:
                size = len(page["body"].encode())
                if size <= left:
                    chosen.append(page)
                    left -= size
            if left < 1500:
                break
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--cache", default=os.path.join(os.environ.get("TMPDIR", "/tmp"), "canopy-sample-debs"))
    parser.add_argument("--bytes", type=int, default=3_200_000, help="text bytes before compression")
    args = parser.parse_args()
    total_share = sum(share for _, _, _, share, _ in PACKAGES)
    corpus, inbound, count = [], {}, {}
    for package, topic, licence, share, patterns in PACKAGES:
        pages = pages_of(package, topic, licence, patterns, args.cache)
        for page in pages:
            for target, text in page["links"]:
                count[target] = count.get(target, 0) + 1
                if 3 <= len(text) and target != page["url"]:
                    inbound.setdefault(target, {}).setdefault(text, None)
        chosen = choose(pages, args.bytes * share // total_share)
        print(f"{package}: {len(chosen)} of {len(pages)} pages, {sum(len(p['body'].encode()) for p in chosen)} bytes")
        corpus += chosen
    most = max(count.values())
    for page in corpus:
        del page["links"]
        anchors = list(inbound.get(page["url"], {}))[:5]
        if anchors:
            page["anchors"] = anchors
        page["static_rank"] = round(math.log1p(count.get(page["url"], 0)) / math.log1p(most), 4)
    corpus.sort(key=lambda page: page["url"])
    path = os.path.join(args.out, "web.jsonl.gz")
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as out:
        for page in corpus:
            out.write((json.dumps(page, ensure_ascii=False, sort_keys=True) + "\n").encode())
    print(f"{path}: {len(corpus)} pages, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
