#!/usr/bin/env python3
"""Makes a large corpus of short real documents: passages of about 70 words from the HTML documentation in Debian
packages, in several languages.

    python3 passages.py --out passages.jsonl.gz [--documents 1000000] [--cache DIR] [-j 2]

Downloads about 400 MB by apt-get (nothing is installed) and needs some minutes. The order and the content depend only on the
packages, so two runs give the same file.
"""
import argparse, gzip, json, multiprocessing, os, re, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli", "sample"))
import make

PACKAGES = """rust-doc postgresql-doc-15 python3.11-doc debian-handbook git-doc nodejs-doc cppreference-doc-en-html
libboost1.74-doc linux-doc-6.1 openjdk-17-doc python-pandas-doc twisted-doc qtbase5-doc-html erlang-doc racket-doc groovy-doc
lazarus-doc-2.2 pike8.0-doc libapache-poi-java-doc libstdc++-12-doc dpdk-doc installation-guide-amd64 llvm-14-doc ghc-doc
wx3.2-doc libreoffice-help-de libreoffice-help-fr libreoffice-help-es libreoffice-help-it libreoffice-help-ru
libreoffice-help-ja libreoffice-help-zh-cn libreoffice-help-ko libreoffice-help-pt-br libreoffice-help-pl
libreoffice-help-nl libreoffice-help-cs libreoffice-help-hu libreoffice-help-tr libreoffice-help-sv libreoffice-help-da
libreoffice-help-fi libreoffice-help-el libreoffice-help-en-us scala-doc""".split()
LANGUAGE = re.compile(r"^libreoffice-help-([a-z]{2})")
WORDS = 70


def passages(task):
    """Writes one package's passages to a part file; returns how many."""
    package, cache, part = task
    found = LANGUAGE.match(package)
    count = 0
    try:
        files = make.package_files(package, cache)
    except Exception as error:  # a package that this release does not have is left out, and said
        print(f"{package}: left out: {error}", file=sys.stderr)
        files = []
    with gzip.open(part, "wt", compresslevel=1, encoding="utf-8") as out:
        for path, _, raw in files:
            page = make.Page()
            try:
                page.feed(make.decode(raw))
            except Exception:  # the HTML parser gives up on some pages
                continue
            title = " ".join(page.title.split())[:200]
            words = page.body().split()
            for number, start in enumerate(range(0, len(words), WORDS)):
                body = " ".join(words[start:start + WORDS])
                if len(body) < 40:
                    continue
                record = {"url": f"https://{package}.debian.example{path}#{number}", "title": title, "body": body}
                if found:
                    record["lang"] = found.group(1)
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
    return package, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="passages.jsonl.gz")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--cache", default=os.path.join(os.environ.get("TMPDIR", "/tmp"), "canopy-bench-debs"))
    parser.add_argument("-j", type=int, default=2)
    args = parser.parse_args()
    parts = [(package, args.cache, f"{args.out}.{number}.part") for number, package in enumerate(PACKAGES)]
    left = args.documents
    with gzip.open(args.out, "wt", compresslevel=1, encoding="utf-8") as out:
        with multiprocessing.Pool(args.j) as pool:
            for (_, _, part), (package, count) in zip(parts, pool.imap(passages, parts)):
                print(f"{package}: {count} passages", flush=True)
                with gzip.open(part, "rt", encoding="utf-8") as lines:
                    for line in lines:
                        if left == 0:
                            break
                        out.write(line)
                        left -= 1
                os.remove(part)
                if left == 0:
                    pool.terminate()
                    break
    for _, _, part in parts:
        if os.path.exists(part):
            os.remove(part)
    print(f"{args.out}: {args.documents - left} documents")
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
