"""``python -m tests.golden``: write the golden files anew."""

from tests.golden import HERE, texts


def main() -> None:
    for name, text in texts().items():
        file = HERE / name
        before = file.read_text("utf-8") if file.exists() else ""
        file.write_text(text, "utf-8")
        print(f"{name}: {'as it was' if before == text else 'changed'}")


if __name__ == "__main__":
    main()
