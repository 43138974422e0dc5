from cursor_gateway.cli import main

main()
